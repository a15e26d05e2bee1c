"""Clients of a cluster: they read and submit tracks all the time, and keep a record.

Instead of a load balancer in front of the cluster, a client itself tries the next node when
nothing listens; it never repeats a request that a node had begun to answer.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

ERROR_FIELDS = {"error", "message", "trace_id"}
UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout)


@dataclass
class Answer:
    """What happened to a request.

    Attributes:
        at_s: When it was sent, on the monotonic clock.
        took_s: Seconds until it was answered.
        what: The kind of request.
        how: A status, with "foreign" if the body of a failure is not the service's own, or the name
            of the error that broke the connection.
        told: The node's URL, and the beginning of a failure's body.
    """

    at_s: float
    took_s: float
    what: str
    how: str
    told: str = ""


@dataclass
class Load:
    """Readers and submitters, one thread each.

    Args:
        urls: The URLs of the nodes' proxies.
        key: An API key.
        reads: Paths to choose from.
        audio: A track to submit.
    """

    urls: Sequence[str]
    key: str
    reads: Sequence[str]
    audio: bytes
    answers: list[Answer] = field(default_factory=list)
    ends: dict[str, list[str]] = field(default_factory=dict)
    """For each job, the states that were read, without repetitions."""

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._no_more_jobs = threading.Event()
        self._random = random.Random(5)

    def ask(
        self, client: httpx.Client, method: str, path: str, what: str, **more: object
    ) -> httpx.Response | None:
        """Send one request to some node, and record what happens to it."""
        order = self._random.sample(list(self.urls), len(self.urls))
        start = time.monotonic()
        how, told, answer = "nobody listens", "", None
        for url in order:
            try:
                answer = client.request(method, url + path, **more)  # type: ignore[arg-type]
            except UNREACHED:
                continue
            except httpx.HTTPError as error:
                how, told = type(error).__name__, url
            else:
                how = str(answer.status_code)
                if answer.status_code >= 400:
                    told = f"{url} {answer.text[:150]}"
                    how += "" if is_ours(answer) else " foreign"
            break
        self.answers.append(Answer(start, time.monotonic() - start, what, how, told))
        return answer

    def read(self) -> None:
        """Send read requests, about five a second, until told to stop."""
        with self.client() as client:
            while not self._is_over.wait(0.2):
                path = self._random.choice(list(self.reads))
                self.ask(client, "GET", path, "read")

    def submit(self) -> None:
        """Submit tracks, one after the other."""
        with self.client() as client:
            while not self._no_more_jobs.wait(0.5):
                answer = self.ask(
                    client,
                    "POST",
                    "/v1/audio-features/upload",
                    "submit",
                    content=self.audio,
                    headers={"Content-Type": "audio/mpeg"},
                )
                if answer is not None and answer.status_code == 202:
                    self.follow(client, answer.json()["job_id"])

    def follow(self, client: httpx.Client, job_id: str) -> None:
        """Poll a job until it ends."""
        states = self.ends.setdefault(job_id, [])
        while not self._is_over.is_set() and states[-1:] not in (["complete"], ["failed"]):
            answer = self.ask(client, "GET", f"/v1/jobs/{job_id}", "poll")
            if answer is not None and answer.status_code == 200:
                state = answer.json()["status"]
                if not states or states[-1] != state:
                    states.append(state)
            time.sleep(1.2)

    @contextmanager
    def going_on(self, readers: int = 3, submitters: int = 2) -> Iterator["Load"]:
        """Run the clients while the block runs; unfinished jobs are polled until they end."""
        readings = [threading.Thread(target=self.read) for _ in range(readers)]
        jobs = [threading.Thread(target=self.submit) for _ in range(submitters)]
        for thread in (*readings, *jobs):
            thread.start()
        try:
            yield self
        finally:
            self._no_more_jobs.set()
            for thread in jobs:
                thread.join(300)
            self._is_over.set()
            for thread in (*readings, *jobs):
                thread.join()

    def counted(self, since_s: float = 0, until_s: float = float("inf")) -> Counter[str]:
        """Count requests by kind and outcome."""
        return Counter(
            f"{one.what} {one.how}" for one in self.answers if since_s <= one.at_s < until_s
        )

    def failures(self) -> list[Answer]:
        """Return the failed requests: no answer, an answer not in the service's words, or a 500."""
        return [one for one in self.answers if not one.how.isdecimal() or one.how == "500"]

    def refused(self) -> list[Answer]:
        """Return the requests that were not done: failures, and refusals that ask to try again."""
        return [one for one in self.answers if one.how not in ("200", "202", "429")]

    def last_failure_s(self, since_s: float) -> float:
        """Return the seconds until the last failed or refused request ended; 0 if none did."""
        late = [one.at_s + one.took_s for one in self.refused()]
        return max([0.0, *(at - since_s for at in late if at > since_s)])

    def client(self) -> httpx.Client:
        """Return a client that uses the key."""
        return httpx.Client(
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=httpx.Timeout(60, connect=2),
        )


def is_ours(answer: httpx.Response) -> bool:
    """Return whether a failure has the body that all errors of the service have."""
    try:
        return set(answer.json()) >= ERROR_FIELDS
    except ValueError:
        return False
