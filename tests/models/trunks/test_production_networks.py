"""Production networks with small random checkpoints in their publishers' formats."""

import asyncio
import json
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import RobertaProcessing, TemplateProcessing
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    ClapAudioConfig,
    ClapAudioModelWithProjection,
    ClapConfig,
    ClapFeatureExtractor,
    ClapModel,
    HubertConfig,
    HubertModel,
    PreTrainedModel,
    Wav2Vec2FeatureExtractor,
)

from models.checkpoints.cache import CheckpointError, pull
from models.checkpoints.cards import CardError, CardFile, ModelCard, UnreadableTextError
from models.checkpoints.sources import file_sha256
from models.networks import build_network
from models.precision import halve_weights
from models.trunks.ced import Ced
from models.trunks.clap import ClapMel, build_clap_text
from models.trunks.mert import MertTrunk, fold_weight_norm
from pipelines.analysis.networks.card_check import check_card
from pipelines.analysis.text import Texts

Build = Callable[..., nn.Module]
MakeClap = Callable[..., tuple[ModelCard, ClapModel]]
SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
AST_SIZE = {**SIZE, "num_labels": 5, "max_length": 128}
HUBERT_SIZE = {
    **SIZE,
    "conv_dim": (32,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
CLAP_SIZE = {
    "patch_embeds_hidden_size": 8,
    "hidden_size": 64,
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 4, 8],
    "projection_dim": 16,
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def build(tmp_path: Path, cards: dict[str, ModelCard]) -> Build:
    """Return a function that pulls a checkpoint in ``tmp_path/source`` by a card and builds it."""

    def make(like: str, files: tuple[str, ...], **changes: object) -> nn.Module:
        folder = tmp_path / "source"
        card = replace(
            cards[like],
            source=f"file://{folder}",
            files=tuple(CardFile(name, file_sha256(folder / name)) for name in files),
        )
        card = replace(card, **changes)  # type: ignore[arg-type]
        pull(card, tmp_path / "cache")
        return build_network(card, tmp_path / "cache").eval()

    return make


def save(model: PreTrainedModel, tmp_path: Path) -> PreTrainedModel:
    for parameter in model.parameters():  # the initial weights are too small to show a difference
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    model.eval().save_pretrained(tmp_path / "source")
    return model


def noise(n: int, samples: int) -> Tensor:
    rng = np.random.default_rng(5)
    return torch.from_numpy(0.1 * rng.standard_normal((n, samples)).astype(np.float32))


def run(network: nn.Module, windows: Tensor) -> dict[str, Tensor]:
    with torch.inference_mode():
        outputs: dict[str, Tensor] = network(windows)
    return outputs


def test_ast_is_transformers_on_its_own_extractors_features(build: Build, tmp_path: Path) -> None:
    model = save(ASTForAudioClassification(ASTConfig(**AST_SIZE)), tmp_path)
    network = build("ast-audioset", ("config.json", "model.safetensors"))
    windows = noise(2, 127 * 160 + 400)
    features = ASTFeatureExtractor(max_length=128)(
        list(windows.numpy()), sampling_rate=16_000, return_tensors="pt"
    )
    with torch.inference_mode():
        want = model(**features, output_hidden_states=True)
    got = run(network, windows)
    torch.testing.assert_close(got["tags"], want.logits.sigmoid(), atol=1e-3, rtol=0)
    assert got["embedding"].shape == (2, 32)
    assert model.config._attn_implementation == "sdpa"


def test_a_compiled_ast_attends_without_a_mask(build: Build, tmp_path: Path) -> None:
    """Flash attention does not work with a mask."""
    save(ASTForAudioClassification(ASTConfig(**AST_SIZE)), tmp_path)
    network = build("ast-audioset", ("config.json", "model.safetensors"))
    masks: list[object] = []

    def look(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        attention = torch.nn.functional.scaled_dot_product_attention
        calls = [node for node in graph.graph.nodes if node.target is attention]
        masks.extend(call.kwargs["attn_mask"] for call in calls)
        return graph.forward

    network.compile_trunk(backend=look, dynamic=False)
    run(network, noise(2, 127 * 160 + 400))
    assert masks == [None] * SIZE["num_hidden_layers"]


def test_a_card_without_configuration_means_the_published_size(
    build: Build, tmp_path: Path
) -> None:
    save(ASTForAudioClassification(ASTConfig(**AST_SIZE)), tmp_path)
    with pytest.raises(CheckpointError, match="does not fit"):
        build("ast-audioset", ("model.safetensors",))


def test_a_missing_tensor_is_never_made_up(build: Build, tmp_path: Path) -> None:
    save(ASTForAudioClassification(ASTConfig(**AST_SIZE)), tmp_path)
    path = tmp_path / "source" / "model.safetensors"
    tensors = load_file(path)
    del tensors["classifier.dense.bias"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"lacks classifier\.dense\.bias"):
        build("ast-audioset", ("config.json", "model.safetensors"))


def test_maest_takes_musicnn_features(build: Build, tmp_path: Path) -> None:
    size = {**AST_SIZE, "num_mel_bins": 96}
    model = save(ASTForAudioClassification(ASTConfig(**size)), tmp_path)
    network = build("maest-30s", ("config.json", "model.safetensors"))
    windows = noise(2, 127 * 256 + 512)
    mel = network.front_end(windows)
    assert mel.shape == (2, 128, 96)
    with torch.inference_mode():
        want = model((mel - 2.06755686098554) / (2 * 1.268292820667291)).logits.sigmoid()
    torch.testing.assert_close(run(network, windows)["tags"], want, atol=1e-5, rtol=0)


def mert_source(tmp_path: Path, **extensions: object) -> PreTrainedModel:
    """Write a checkpoint like MERT's: pickled, old names of weight norm, fields of its own."""
    model = save(HubertModel(HubertConfig(**HUBERT_SIZE)), tmp_path)
    source = tmp_path / "source"
    old = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        name = name.replace("parametrizations.weight.original0", "weight_g")
        old[name.replace("parametrizations.weight.original1", "weight_v")] = tensor
    assert any(name.endswith("conv.weight_g") for name in old)
    torch.save(old, source / "pytorch_model.bin")
    config = json.loads((source / "config.json").read_text())
    config |= {"feature_extractor_cqt": False, "attention_relax": -1, "deepnorm": False}
    (source / "config.json").write_text(json.dumps(config | extensions))
    return model


def test_mert_is_hubert_averaged_over_layers_and_time(build: Build, tmp_path: Path) -> None:
    model = mert_source(tmp_path)
    network = build("mert-95m", ("config.json", "pytorch_model.bin"))
    windows = noise(2, 12_000)
    inputs = Wav2Vec2FeatureExtractor(sampling_rate=24_000, do_normalize=True)(
        list(windows.numpy()), sampling_rate=24_000, return_tensors="pt"
    )
    with torch.inference_mode():
        layers = model(inputs.input_values, output_hidden_states=True).hidden_states
    assert len(layers) == 3
    want = torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)
    torch.testing.assert_close(run(network, windows)["embedding"], want, atol=1e-4, rtol=0)
    names = dict(network.named_parameters())
    assert "trunk.encoder.pos_conv_embed.conv.weight" in names  # weight norm is folded


def test_merts_layers_are_let_go_and_its_trunk_compiles_in_one_piece() -> None:
    trunk = MertTrunk(HubertConfig(**HUBERT_SIZE | {"num_hidden_layers": 4})).eval()
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal most
        alive.append(weakref.ref(output))
        most = max(most, sum(seen() is not None for seen in alive))

    hooks = [layer.register_forward_hook(note) for layer in trunk.encoder.layers]
    eager = run(trunk, noise(2, 12_000))
    assert most == 2  # one layer's input and its output
    for hook in hooks:
        hook.remove()
    trunk.compile(dynamic=False, fullgraph=True, backend="eager")
    torch.testing.assert_close(run(trunk, noise(2, 12_000)), eager)


@pytest.mark.parametrize("stable", [False, True])
def test_merts_trunk_is_huberts_mean_over_layers_and_time(stable: bool) -> None:
    config = HubertConfig(**HUBERT_SIZE, do_stable_layer_norm=stable)
    published, trunk = HubertModel(config).eval(), MertTrunk(config).eval()
    trunk.load_state_dict(fold_weight_norm(published.state_dict()))
    windows = noise(2, 12_000)
    with torch.inference_mode():
        layers = published(windows, output_hidden_states=True).hidden_states
    want = torch.stack([layer.mean(dim=1) for layer in layers]).mean(dim=0)
    torch.testing.assert_close(run(trunk, windows), want, atol=1e-6, rtol=1e-5)


def test_mert_with_extensions_or_gaps_is_refused(build: Build, tmp_path: Path) -> None:
    mert_source(tmp_path, deepnorm=True)
    with pytest.raises(CheckpointError, match="deepnorm is not supported"):
        build("mert-95m", ("config.json", "pytorch_model.bin"))
    mert_source(tmp_path)
    state = torch.load(tmp_path / "source" / "pytorch_model.bin", weights_only=True)
    del state["encoder.layers.1.final_layer_norm.bias"]
    torch.save(state, tmp_path / "source" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"lacks encoder\.layers\.1\.final_layer_norm\.bias"):
        build("mert-95m", ("config.json", "pytorch_model.bin"))


def test_clap_is_transformers_on_its_own_extractors_features(build: Build, tmp_path: Path) -> None:
    model = save(ClapAudioModelWithProjection(ClapAudioConfig(**CLAP_SIZE)), tmp_path)
    network = build("clap", ("config.json", "model.safetensors"), format="safetensors")
    windows = noise(2, 480_000)
    extractor = ClapFeatureExtractor(
        truncation="rand_trunc", padding="repeatpad", frequency_min=50, frequency_max=14_000
    )
    features = extractor(list(windows.numpy()), sampling_rate=48_000, return_tensors="pt")
    torch.testing.assert_close(
        ClapMel()(windows), features["input_features"].float(), atol=1e-2, rtol=0
    )
    with torch.inference_mode():
        want = model(input_features=features["input_features"].float()).audio_embeds
    got = run(network, windows)
    want = want / want.norm(dim=-1, keepdim=True)
    assert (got["projection"] * want).sum(dim=-1).min() > 0.99999
    assert got["embedding"].shape == (2, 64)


def clap_tokenizer(words: tuple[str, ...]) -> Tokenizer:
    """Return a tokenizer that knows a few words, and marks beginning and end as RoBERTa's does."""
    known = {"<s>": 0, "<pad>": 1, "</s>": 2}
    made = Tokenizer(WordLevel(known | {word: 4 + n for n, word in enumerate(words)}))
    made.pre_tokenizer = Whitespace()
    made.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


WORDS = ("slow", "piano", "rain")
CLAP_FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture
def clap(tmp_path: Path, cards: dict[str, ModelCard]) -> MakeClap:
    """Return a function that pulls a CLAP with a tokenizer and gives its card and the network."""

    def make(tokenizer: Tokenizer | str, **text: object) -> tuple[ModelCard, ClapModel]:
        torch.manual_seed(0)
        size = {**SIZE, "vocab_size": 16, "max_position_embeddings": 90, "projection_dim": 16}
        config = ClapConfig(audio_config=CLAP_SIZE, text_config=size | text, projection_dim=16)
        model = save(ClapModel(config), tmp_path)
        if not isinstance(tokenizer, str):
            tokenizer = tokenizer.to_str()
        (tmp_path / "source" / "tokenizer.json").write_text(tokenizer)
        digests = {name: file_sha256(tmp_path / "source" / name) for name in CLAP_FILES}
        card = replace(
            cards["clap"],
            source=f"file://{tmp_path / 'source'}",
            files=tuple(CardFile(name, digest) for name, digest in digests.items()),
            format="safetensors",
            network="clap-joint",
            outputs={"embedding": 16, "projection": 16},
        )
        pull(card, tmp_path / "cache")
        return card, model

    return make


def test_claps_words_lie_in_the_space_of_its_projection(
    clap: MakeClap,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    card, model = clap(clap_tokenizer(WORDS))
    capfd.readouterr()
    network = build_network(card, tmp_path / "cache").eval()
    assert capfd.readouterr() == ("", "")  # tensors of the other half are not reported
    heard = run(network, noise(2, 480_000))
    torch.testing.assert_close(heard["embedding"], heard["projection"])
    assert card.reads_text
    assert not replace(card, network="clap").reads_text  # its embedding is not the projection
    read = build_clap_text(card, tmp_path / "cache")
    with torch.inference_mode():
        want = model.get_text_features(torch.tensor([[0, 4, 5, 2]])).pooler_output[0]
    torch.testing.assert_close(read("slow piano"), want / want.norm())
    assert read("slow piano") @ read("rain") < 0.999
    assert read("rain " * 500).isfinite().all()  # long texts are cut
    vector = asyncio.run(Texts(tmp_path / "cache").embed("slow piano", card))
    torch.testing.assert_close(torch.tensor(vector[:16]), want / want.norm(), atol=1e-6, rtol=0)
    assert vector[16:] == [0.0] * 752
    *_, last = check_card(card, tmp_path / "cache", torch.device("cpu"))
    assert (last.what, last.fault) == ("it reads words", "")


@pytest.mark.parametrize("direction", ["left", "right"])
def test_what_a_tokenizer_fills_texts_up_with_is_not_read(
    clap: MakeClap, tmp_path: Path, direction: str
) -> None:
    card, _ = clap(clap_tokenizer(WORDS))
    plain = build_clap_text(card, tmp_path / "cache")("slow piano")
    filling = clap_tokenizer(WORDS)
    filling.enable_padding(direction=direction, pad_id=1, pad_token="<pad>", length=77)  # noqa: S106
    card, _ = clap(filling)
    torch.testing.assert_close(build_clap_text(card, tmp_path / "cache")("slow piano"), plain)


def test_a_text_is_cut_to_the_positions_of_its_network(clap: MakeClap, tmp_path: Path) -> None:
    card, _ = clap(clap_tokenizer(WORDS), max_position_embeddings=12)
    read = build_clap_text(card, tmp_path / "cache")
    torch.testing.assert_close(read("rain " * 8), read("rain " * 50))


def test_a_text_without_tokens_is_refused(clap: MakeClap, tmp_path: Path) -> None:
    card, _ = clap(clap_tokenizer(WORDS))
    with pytest.raises(UnreadableTextError, match="Missing"):
        build_clap_text(card, tmp_path / "cache")("slow jazz")
    bare = clap_tokenizer(WORDS)
    bare.normalizer = Replace("rain", "")
    bare.post_processor = TemplateProcessing("$A", "$A $B", [])
    card, _ = clap(bare)
    with pytest.raises(UnreadableTextError, match="nothing is left"):
        build_clap_text(card, tmp_path / "cache")("rain")
    with pytest.raises(UnreadableTextError):
        asyncio.run(Texts(tmp_path / "cache").embed("rain", card))


@pytest.mark.parametrize(
    ("tokenizer", "told"),
    [('{"a": 1}', "is not a tokenizer"), (clap_tokenizer((*WORDS, *"abcdefghij")), "more tokens")],
)
def test_a_tokenizer_of_another_network_is_found(
    clap: MakeClap,
    tmp_path: Path,
    tokenizer: Tokenizer | str,
    told: str,
) -> None:
    card, _ = clap(tokenizer)
    with pytest.raises(CheckpointError, match=told):
        build_clap_text(card, tmp_path / "cache")
    *_, last = check_card(card, tmp_path / "cache", torch.device("cpu"))
    assert last.what == "it reads words"
    assert told in last.fault


def ced_tensors(width: int = 128, depth: int = 2, n_tags: int = 5) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.init_bn.weight": (64,),
        "encoder.init_bn.bias": (64,),
        "encoder.init_bn.running_mean": (64,),
        "encoder.patch_embed.proj.weight": (width, 1, 16, 16),
        "encoder.patch_embed.proj.bias": (width,),
        "encoder.time_pos_embed": (1, width, 1, 63),
        "encoder.freq_pos_embed": (1, width, 4, 1),
        "encoder.norm.weight": (width,),
        "encoder.norm.bias": (width,),
        "outputlayer.0.weight": (width,),
        "outputlayer.0.bias": (width,),
        "outputlayer.1.weight": (n_tags, width),
        "outputlayer.1.bias": (n_tags,),
    }
    for layer in range(depth):
        block = f"encoder.blocks.{layer}."
        linear = {"attn.qkv": 3 * width, "attn.proj": width, "mlp.fc1": 4 * width}
        shapes |= {f"{block}{k}.weight": (n, width) for k, n in linear.items()}
        shapes |= {f"{block}{k}.bias": (n,) for k, n in linear.items()}
        shapes |= {f"{block}mlp.fc2.weight": (width, 4 * width), f"{block}mlp.fc2.bias": (width,)}
        for norm in ("norm1", "norm2"):
            shapes |= {f"{block}{norm}.{k}": (width,) for k in ("weight", "bias")}
    tensors = {name: 0.1 * torch.randn(shape) for name, shape in shapes.items()}
    tensors["encoder.init_bn.running_var"] = torch.rand(64) + 50
    tensors["encoder.init_bn.num_batches_tracked"] = torch.tensor(1)
    return tensors


def plain_ced(t: dict[str, Tensor], mel: Tensor) -> tuple[Tensor, Tensor]:
    """Run one spectrogram ``[F, N]`` through CED, step by step and head by head."""
    layer_norm = torch.nn.functional.layer_norm
    e = "encoder."
    gain = t[e + "init_bn.weight"] / (t[e + "init_bn.running_var"] + 1e-5).sqrt()
    x = (mel - t[e + "init_bn.running_mean"][:, None]) * gain[:, None]
    x = x + t[e + "init_bn.bias"][:, None]
    width = t[e + "norm.bias"].shape[0]
    tokens = []
    for row in range(4):
        for column in range(mel.shape[1] // 16):
            patch = x[16 * row : 16 * row + 16, 16 * column : 16 * column + 16].reshape(-1)
            token = t[e + "patch_embed.proj.weight"].reshape(width, -1) @ patch
            token = token + t[e + "patch_embed.proj.bias"]
            token = token + t[e + "time_pos_embed"][0, :, 0, column]
            tokens.append(token + t[e + "freq_pos_embed"][0, :, row, 0])
    y = torch.stack(tokens)
    for layer in range(2):
        b = f"{e}blocks.{layer}."
        z = layer_norm(y, (width,), t[b + "norm1.weight"], t[b + "norm1.bias"], 1e-6)
        q, k, v = (z @ t[b + "attn.qkv.weight"].T + t[b + "attn.qkv.bias"]).split(width, dim=1)
        heads = []
        for h in range(width // 64):
            part = slice(64 * h, 64 * h + 64)
            weights = (q[:, part] @ k[:, part].T / 8).softmax(dim=1)
            heads.append(weights @ v[:, part])
        y = y + torch.cat(heads, dim=1) @ t[b + "attn.proj.weight"].T + t[b + "attn.proj.bias"]
        z = layer_norm(y, (width,), t[b + "norm2.weight"], t[b + "norm2.bias"], 1e-6)
        z = torch.nn.functional.gelu(z @ t[b + "mlp.fc1.weight"].T + t[b + "mlp.fc1.bias"])
        y = y + z @ t[b + "mlp.fc2.weight"].T + t[b + "mlp.fc2.bias"]
    y = layer_norm(y, (width,), t[e + "norm.weight"], t[e + "norm.bias"], 1e-6).mean(dim=0)
    o = layer_norm(y, (width,), t["outputlayer.0.weight"], t["outputlayer.0.bias"])
    return y, (o @ t["outputlayer.1.weight"].T + t["outputlayer.1.bias"]).sigmoid()


def test_ced_is_its_definition(build: Build, tmp_path: Path) -> None:
    tensors = ced_tensors()
    (tmp_path / "source").mkdir()
    save_file(tensors, tmp_path / "source" / "model.safetensors")
    network = build("ced-base", ("model.safetensors",))
    windows = noise(2, 32_000)
    got = run(network, windows)
    for row, mel in enumerate(network.mel(windows)):
        embedding, tags = plain_ced(tensors, mel)
        torch.testing.assert_close(got["embedding"][row], embedding, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(got["tags"][row], tags, atol=1e-4, rtol=0)


def test_ced_front_end_is_torchaudios() -> None:
    from torchaudio.transforms import AmplitudeToDB, MelSpectrogram

    windows = noise(1, 32_000)
    mel = MelSpectrogram(16_000, n_fft=512, win_length=512, hop_length=160, n_mels=64)(windows)
    want = AmplitudeToDB(top_db=120)(mel)
    torch.testing.assert_close(Ced(ced_tensors()).mel(windows), want, atol=1e-2, rtol=0)


def test_foreign_weights_are_not_a_ced_network(build: Build, tmp_path: Path) -> None:
    tensors = ced_tensors()
    del tensors["encoder.norm.bias"]
    (tmp_path / "source").mkdir()
    save_file(tensors, tmp_path / "source" / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a CED network"):
        build("ced-base", ("model.safetensors",))


def networks(build: Build, tmp_path: Path) -> dict[str, tuple[nn.Module, Tensor]]:
    made: dict[str, tuple[nn.Module, Tensor]] = {}
    save(ASTForAudioClassification(ASTConfig(**AST_SIZE)), tmp_path)
    made["ast"] = (
        build("ast-audioset", ("config.json", "model.safetensors")),
        noise(3, 127 * 160 + 400),
    )
    mert_source(tmp_path)
    made["mert"] = build("mert-95m", ("config.json", "pytorch_model.bin")), noise(3, 12_000)
    made["ced"] = Ced(ced_tensors()).eval(), noise(3, 32_000)
    return made


def test_a_row_of_a_batch_is_the_window_alone(build: Build, tmp_path: Path) -> None:
    for name, (network, windows) in networks(build, tmp_path).items():
        together = run(network, windows)["embedding"]
        alone = torch.cat([run(network, window[None])["embedding"] for window in windows])
        assert torch.cosine_similarity(together, alone).min() >= 0.9999, name
        assert not torch.equal(together[0], together[1]), name


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")  # from the switch itself
def test_half_precision_keeps_the_embedding(build: Build, tmp_path: Path) -> None:
    for name, (network, windows) in networks(build, tmp_path).items():
        full = run(network, windows)["embedding"]
        network.precision = torch.bfloat16
        # With torch's own products: oneDNN's depend on the processor, and are coarser with AMX.
        with torch.backends.mkldnn.flags(enabled=False):
            half = run(network, windows)["embedding"]
            halve_weights(network)
            halved = run(network, windows)["embedding"]
        assert half.dtype == torch.float32
        assert not torch.equal(half, full), name
        assert torch.cosine_similarity(half, full).min() >= 0.9999, name
        assert torch.cosine_similarity(halved, full).min() >= 0.9999, name


def test_a_network_that_nothing_runs_is_refused(
    cards: dict[str, ModelCard], tmp_path: Path
) -> None:
    with pytest.raises(CardError, match="nothing runs a 'hpcp' network"):
        build_network(cards["hpcp"], tmp_path)


def test_half_precision_halves_what_a_network_weighs(build: Build, tmp_path: Path) -> None:
    network, _ = networks(build, tmp_path)["ast"]

    def size() -> int:
        return sum(p.numel() * p.element_size() for p in network.parameters())

    before = size()
    halve_weights(network)
    assert size() < 0.75 * before
    assert network.trunk.audio_spectrogram_transformer.layernorm.weight.dtype == torch.float32


class HostWatch(TorchDispatchMode):
    """Records every operation on CPU tensors, and every result that is copied back to the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        taken, given = (
            [leaf.device.type for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
            for tree in ((args, kwargs), result)
        )
        if "cpu" in taken or (taken and "cpu" in given):
            self.seen.append(str(func))
        return result


def of_the_host(network: nn.Module, windows: Tensor) -> list[str]:
    network, windows = network.to("meta"), windows.to("meta")
    with torch.inference_mode(), HostWatch() as watch:
        network(windows)
    return watch.seen


def test_a_forward_stays_on_its_device(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs record neither copies from the host nor waits for results; `meta` acts as the GPU."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # `meta` has none
    made = networks(build, tmp_path)
    save(ClapAudioModelWithProjection(ClapAudioConfig(**CLAP_SIZE)), tmp_path)
    clap = build("clap", ("config.json", "model.safetensors"), format="safetensors")
    for name, (network, windows) in {**made, "clap": (clap, noise(2, 480_000))}.items():
        assert of_the_host(network, windows) == [], name


def test_what_comes_from_the_host_is_noticed() -> None:
    class Scaled(nn.Module):
        def forward(self, windows: Tensor) -> Tensor:
            return windows * torch.tensor([2.0]).to(windows.device)

    assert of_the_host(Scaled(), torch.ones(3))
