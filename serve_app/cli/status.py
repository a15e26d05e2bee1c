"""`afa status`: whether the service runs, how its parts are, and what is enabled."""

from collections.abc import Sequence

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from rich.table import Table

from configs.settings import Settings
from serve_app.cli.environment import console, fail, told
from serve_app.cli.service import starting
from serve_app.composition.files import LocalFiles
from serve_app.composition.outside import outside_services
from serve_app.local.embedded_redis import is_alive
from serve_app.providers.recognisers.registry import KINDS

DEVICE_GAUGE, PUBLISHED_GAUGE = "ray_afa_device_info", "ray_afa_published_info"
WARM_UP_GAUGE = "ray_afa_warm_up_seconds"


def status() -> None:
    """Show whether the service is running and how its parts are doing."""
    files = LocalFiles(Settings().data_dir.absolute())
    session = files.read_session()
    start = starting(files)
    if start is not None:
        console.print(f"starting, pid {start}; `afa down` ends it")
        raise typer.Exit(1)
    if session is None or not is_alive(session["pids"]["service"]):
        console.print("not running; start it with `afa up`")
        raise typer.Exit(1)
    console.print(f"url      {session['url']}\nservice  pid {session['pids']['service']}")
    console.print(f"metrics  {session.get('metrics', 'started by an older afa')}")
    try:
        checks = httpx.get(f"{session['url']}/readyz", timeout=5, trust_env=False).json()["checks"]
    except httpx.HTTPError as error:
        fail(f"no answer from {session['url']}: {type(error).__name__}; see {files.log_path}")
    except (ValueError, KeyError):  # the proxy's own answer
        fail(f"no part of the service answers at {session['url']}; see {files.log_path}")
    for part, state in checks.items():
        console.print(f"{part:<10} {state}")
    samples = samples_at(session.get("metrics"))
    for line in [*loaded(samples), *published(samples)]:
        console.print(line, highlight=False)
    console.print(providers_table(Settings()), soft_wrap=False)


def samples_at(metrics_url: str | None) -> list[Sample]:
    """Return the samples of the service's metrics; empty if nothing answers."""
    if metrics_url is None:
        return []
    try:
        text = httpx.get(metrics_url, timeout=5, trust_env=False).text
    except httpx.HTTPError:
        return []
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def loaded(samples: Sequence[Sample]) -> list[str]:
    """Say for each checkpoint in use where it is, and how long it took to be ready."""
    warm_up_s: dict[str, float] = {}
    for one in samples:
        if one.name == WARM_UP_GAUGE:  # once per replica
            model = one.labels["model"]
            warm_up_s[model] = max(one.value, warm_up_s.get(model, 0.0))
    lines = []
    for model, device in sorted(_named(samples, DEVICE_GAUGE, "model", "device")):
        took_s = warm_up_s.get(model)
        lines.append(f"{model} on {device}" + (f", warm after {took_s:.1f} s" if took_s else ""))
    return lines


def published(samples: Sequence[Sample]) -> list[str]:
    """Say for what is published which generation is served."""
    pairs = _named(samples, PUBLISHED_GAUGE, "what", "generation")
    return [f"{what}: generation {generation}" for what, generation in sorted(pairs)]


def _named(samples: Sequence[Sample], name: str, *labels: str) -> set[tuple[str, ...]]:
    return {
        tuple(one.labels[label] for label in labels)
        for one in samples
        if one.name == name and one.value
    }


def providers_table(settings: Settings) -> Table:
    """Lay out which outside services are enabled, and what enables the others."""
    with told(ValueError):
        identities, sources = outside_services(settings)
    asked = {recogniser.name for recogniser in sources.recognisers}
    enabled_by = {kind.name: kind.terms.enabled_by for kind in KINDS}
    table = Table("provider", "on", "turned on by")
    for line in identities.statuses:
        table.add_row(line.name, "yes" if line.is_on else "", line.terms.enabled_by)
    for name in sources.order:
        by = enabled_by.get(name, "")
        table.add_row(f"identify: {name}", "yes" if name in asked else "", by)
    return table
