"""The guarded fetcher against a real local server, and its address rules."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from serve_app.providers.web import audio_url
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.public_address import is_public
from serve_app.providers.web.url_guard import NOT_FOUND, InvalidUrlError, UrlFetchError, UrlGuard

AUDIO = b"ID3\x04" + bytes(range(256)) * 9000
LOOPBACK = ("127.0.0.0/8",)

Answer = Callable[[str, dict[str, str]], bytes]


class Server:
    """Answers every request with what ``answer`` returns for its path and headers; keeps a log."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answer: Answer = lambda path, headers: ok(AUDIO)
        self.stall_s = self.stays_open_s = 0.0
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        path = lines[0].split(" ")[1]
        self.requests.append((path, headers))
        try:
            await asyncio.sleep(self.stall_s)
            writer.write(self.answer(path, headers))
            await writer.drain()
            await asyncio.sleep(self.stays_open_s)
        except ConnectionError:
            pass
        finally:
            writer.close()


def ok(body: bytes, content_type: str = "audio/mpeg", **more: str) -> bytes:
    return response("200 OK", {"Content-Type": content_type, **more}, body)


def response(status: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    headers = {"Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    yield server
    listener.close()
    await listener.wait_closed()


def resolver(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


@pytest.fixture
def fetcher(server: Server) -> AudioUrlFetcher:
    guard = UrlGuard(ports=(80, server.port), networks=LOOPBACK)
    return AudioUrlFetcher(guard, resolver("127.0.0.1"))


async def test_audio_arrives_whole(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.answer = lambda path, headers: ok(
        AUDIO, "Audio/MPEG; charset=x", **{"Set-Cookie": "a=1"}
    )
    url = f"http://music.example.com:{server.port}/a%20b/é.mp3?k=v&x=ü#part"
    fetched = await fetcher.fetch(url, tmp_path / "a", len(AUDIO))
    assert (tmp_path / "a").read_bytes() == AUDIO
    assert fetched.size_bytes == len(AUDIO)
    assert fetched.sha256 == hashlib.sha256(AUDIO).hexdigest()
    assert fetched.content_type == "audio/mpeg"
    ((path, headers),) = server.requests
    assert path == "/a%20b/%C3%A9.mp3?k=v&x=%C3%BC"
    assert headers["Host"] == f"music.example.com:{server.port}"
    assert headers["Accept-Encoding"] == "identity"
    assert not {"Cookie", "Authorization"} & headers.keys()


async def test_chunked_audio_without_a_length_arrives(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path
) -> None:
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(AUDIO), AUDIO) for _ in range(2)) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.answer = lambda path, headers: head + chunked
    url = f"http://a.example.com:{server.port}/"
    assert (await fetcher.fetch(url, tmp_path / "a", 10**7)).size_bytes == 2 * len(AUDIO)
    with pytest.raises(UrlFetchError, match=r"larger than the limit of 3 MB\."):
        await fetcher.fetch(url, tmp_path / "a", 3 * 2**20)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ok(b"<!doctype html><p>hi", "text/html; charset=utf-8"), "web page, text or playlist"),
        (ok(b"  <HTML>", "audio/mpeg"), "web page, text or playlist"),
        (ok(b"#EXTM3U\n#EXTINF", "audio/mpeg"), "web page, text or playlist"),
        (ok(b"\x00", "application/vnd.apple.mpegurl"), "web page, text or playlist"),
        (ok(b'{"error": 1}', "audio/mpeg"), "web page, text or playlist"),
        (ok(b""), "empty file"),
        (ok(AUDIO, **{"Content-Encoding": "gzip"}), "compresses"),
        (ok(b"x", **{"Content-Length": "99999999999"}), "larger than the limit"),
        (response("404 Not Found", {}), "answers 404"),
        (response("403 Forbidden", {}), "needs a login"),
        (response("302 Found", {"Location": "ftp://a.example.com/"}), "may not be fetched"),
        (response("302 Found", {"Location": "http://169.254.169.254/"}), "public internet"),
        (response("302 Found", {"Location": "http://a.example.com:22/"}), "port 22"),
        (response("302 Found", {"Location": "http://me@a.example.com/"}), "user name"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not answer as it should"),
        (ok(AUDIO)[:-1000], "did not answer as it should"),
        (b"", "did not answer as it should"),
    ],
)
async def test_answers_that_are_no_audio(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path, answer: bytes, message: str
) -> None:
    server.answer = lambda path, headers: answer
    with pytest.raises(UrlFetchError, match=message):
        await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert not (tmp_path / "a").exists()


async def test_redirects_are_followed_and_counted(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path
) -> None:
    def answer(path: str, headers: dict[str, str]) -> bytes:
        left = int(path.strip("/"))
        return response("307 Moved", {"Location": f"{left - 1}"}) if left else ok(AUDIO)

    server.answer = answer
    base = f"http://a.example.com:{server.port}"
    assert (await fetcher.fetch(f"{base}/3", tmp_path / "a", 10**8)).size_bytes == len(AUDIO)
    with pytest.raises(UrlFetchError, match="more than 3 times"):
        await fetcher.fetch(f"{base}/4", tmp_path / "a", 10**8)


async def test_a_redirect_to_a_name_with_a_private_address_is_refused(
    server: Server, tmp_path: Path
) -> None:
    names = {"good.example.com": ["127.0.0.1"], "evil.example.com": ["10.0.0.5"]}
    asked = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return names[host]

    fetcher = AudioUrlFetcher(UrlGuard((80, server.port), LOOPBACK), resolve)
    server.answer = lambda path, headers: response(
        "301 Moved", {"Location": "http://evil.example.com/latest/meta-data"}
    )
    with pytest.raises(UrlFetchError, match="cannot be found on the public internet"):
        await fetcher.fetch(f"http://good.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert asked == ["good.example.com", "evil.example.com"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["fe80::1%eth0"],
        ["nonsense"],
        [],
    ],
)
async def test_one_private_answer_spoils_a_name(
    server: Server, tmp_path: Path, answers: list[str]
) -> None:
    fetcher = AudioUrlFetcher(UrlGuard((server.port,)), resolver(*answers))
    with pytest.raises(UrlFetchError) as refusal:
        await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert str(refusal.value) == NOT_FOUND
    assert server.requests == []


async def test_an_unknown_name_reads_like_a_private_one(server: Server, tmp_path: Path) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    fetcher = AudioUrlFetcher(UrlGuard((server.port,)), resolve)
    with pytest.raises(UrlFetchError) as refusal:
        await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert str(refusal.value) == NOT_FOUND


async def test_the_name_is_resolved_once_and_the_checked_address_used(
    server: Server, tmp_path: Path
) -> None:
    asked = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.9.9.9"]

    fetcher = AudioUrlFetcher(UrlGuard((server.port,), LOOPBACK), resolve)
    await fetcher.fetch(f"http://rebind.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert asked == ["rebind.example.com"]


async def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    fetcher = AudioUrlFetcher(
        UrlGuard((server.port,), LOOPBACK), resolver("127.0.0.9", "127.0.0.1")
    )
    await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)


async def test_a_closed_port_and_a_silent_one_read_the_same(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_url, "FIRST_BYTE_S", 0.1)
    guard = UrlGuard((1, server.port), LOOPBACK)
    fetcher = AudioUrlFetcher(guard, resolver("127.0.0.1"))
    with pytest.raises(UrlFetchError) as closed:
        await fetcher.fetch("http://a.example.com:1/", tmp_path / "a", 10**8)
    server.stall_s = 0.5
    with pytest.raises(UrlFetchError) as silent:
        await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)
    assert str(closed.value) == str(silent.value)


async def test_the_whole_takes_at_most_its_time(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_url, "TOTAL_S", 0.2)
    server.stall_s = 1.0
    with pytest.raises(UrlFetchError, match="upload the file instead"):
        await fetcher.fetch(f"http://a.example.com:{server.port}/", tmp_path / "a", 10**8)


def make_certificate(folder: Path, name: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def test_tls_checks_the_name_not_the_address(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "music.example.com")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    names = []
    context.sni_callback = lambda connection, name, _: names.append(name)
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    guard = UrlGuard((port,), LOOPBACK)
    trusting = ssl.create_default_context(cafile=str(certificate))
    fetcher = AudioUrlFetcher(guard, resolver("127.0.0.1"), trusting)
    await fetcher.fetch(f"https://music.example.com:{port}/a", tmp_path / "a", 10**8)
    assert names == ["music.example.com"]
    for wary in (AudioUrlFetcher(guard, resolver("127.0.0.1")), fetcher):
        with pytest.raises(UrlFetchError, match="no valid certificate"):
            await wary.fetch(f"https://other.example.com:{port}/a", tmp_path / "b", 10**8)
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.mp3",
        "http://example.com:80/a.mp3?x=1",
        "https://EXAMPLE.com.:443",
        "https://bücher.example/ä.mp3",
        "https://bucket_name.s3.example.com/a",
        "https://93.184.216.34/a.mp3",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/a.mp3",
    ],
)
def test_good_addresses_pass(url: str) -> None:
    UrlGuard().check(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must begin with https"),
        ("music.mp3", "must begin with https"),
        ("ftp://example.com/a", "must begin with https"),
        ("file:///etc/passwd", "must begin with https"),
        ("https:///a.mp3", "host name"),
        ("https://user:secret@example.com/", "user name or password"),
        ("https://example.com@127.0.0.1/", "user name or password"),
        ("https://example.com:8080/", "only 80 and 443 may be used .AFA_URL_PORTS"),
        ("https://example.com:99999/", "well-formed"),
        ("https://exa mple.com/", "white space"),
        ("https://example.com/a\r\nHost: b", "white space"),
        ("https://example.com\\@127.0.0.1/", "backslash"),
        ("https://[::1/", "well-formed"),
        ("https://-a.example.com/", "host name"),
        ("https://example..com/", "host name"),
        ("https://127.0.0.1/", "public internet. .* allow its network .AFA_URL_NETWORKS"),
        ("https://2130706433/", "host name"),
        ("https://0x7f.1/", "host name"),
        ("https://127.1/", "host name"),
        ("https://0177.0.0.1/", "host name"),
        ("https://\uff11\uff12\uff17.0.0.1/", "public internet|host name"),
        ("https://[::1]/", "public internet"),
        ("https://[::ffff:10.0.0.1]/", "public internet"),
        ("https://[fe80::1%25eth0]/", "public internet"),
        ("https://localhost/", "public internet"),
        ("https://printer/", "public internet"),
        ("https://metadata.google.internal/", "public internet"),
        ("https://example.com/" + "a" * 2048, "longer than 2048"),
    ],
)
def test_bad_addresses_are_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(InvalidUrlError, match=message):
        UrlGuard().check(url)


def test_allowed_networks_open_local_names() -> None:
    UrlGuard((8000,), LOOPBACK).check("http://localhost:8000/a.mp3")
    UrlGuard((8000,), LOOPBACK).check("http://127.0.0.1:8000/a.mp3")
    with pytest.raises(InvalidUrlError):
        UrlGuard((8000,), LOOPBACK).check("http://10.0.0.1:8000/a.mp3")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.1", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "169.254.169.254"),
        *("172.31.0.1", "192.168.1.1", "192.0.0.192", "198.18.0.1", "203.0.113.7", "224.0.0.1"),
        *("255.255.255.255", "240.0.0.1", "168.63.129.16", "192.88.99.1", "239.255.255.250"),
        *("::", "::1", "::7f00:1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2606:2800:220:1:0:5efe:7f00:1", "2606:2800:220:1:200:5efe:a9fe:a9fe"),
        *("2002:a9fe:a9fe::", "2002:7f00:1::1", "2001:0:53aa:64c:0:0:80ff:fffe", "2001:db8::1"),
        *("100::1", "3fff::1", "5f00::1", "2001:20::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


async def test_a_host_that_hardly_sends_is_given_up(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_url, "SLOW_START_S", 0.3)
    server.answer = lambda path, headers: response("200 OK", {"Content-Length": "9000"}, b"ID3")
    server.stays_open_s = 3.0
    with pytest.raises(UrlFetchError, match="less than 8 KiB/s"):
        await fetcher.fetch(f"http://127.0.0.1:{server.port}/", tmp_path / "a", 10_000)


async def test_a_host_that_sends_crumbs_is_given_up(
    server: Server, fetcher: AudioUrlFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_url, "MANY_CHUNKS", 100)
    head = {"Transfer-Encoding": "chunked", "Content-Length": ""}
    server.answer = lambda path, headers: response("200 OK", head, b"1\r\nx\r\n" * 1000)
    with pytest.raises(UrlFetchError, match="tiny pieces"):
        await fetcher.fetch(f"http://127.0.0.1:{server.port}/", tmp_path / "a", 10_000)
