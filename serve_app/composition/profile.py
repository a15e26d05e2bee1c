"""What a Serve file says about the application, for the builder and the back-fill."""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from configs.settings import Settings
from serve_app.composition.model_args import ModelArgs
from serve_app.composition.options import JobOptions, ModelOptions, WorkerOptions


class ProfileError(ValueError):
    """A file is not a Serve file of afa."""


class AppArgs(BaseModel):
    """The ``args`` of the application in a Serve configuration file.

    Replicas, CPUs and GPUs are Serve's own options, under ``deployments`` of the same file.
    Addresses and secrets come from the environment (`configs.settings.Settings`).
    """

    model_config = ConfigDict(extra="forbid")

    spectral: ModelArgs = ModelArgs()
    mood: ModelArgs = ModelArgs()
    embedding: ModelArgs = ModelArgs()
    worker: WorkerOptions = WorkerOptions()
    jobs: JobOptions = JobOptions()
    models: dict[str, str] = Field(
        {}, description="Role to model id, where not the default; `afa models swap` goes before it."
    )
    shared_trunk: bool = Field(
        False,
        description="One deployment MoodAndEmbedding, with the options of embedding, in place of "
        "Mood and Embedding: a checkpoint that serves both roles is run once.",
    )

    def model_options(
        self, model: ModelArgs, settings: Settings, published: str | None = None
    ) -> ModelOptions:
        """Return a model deployment's options; ``published`` is where checkpoints are published."""
        return ModelOptions(
            model_dir=settings.resolved_model_dir(),
            licences=settings.model_licences,
            device=settings.device,
            chosen=self.models,
            published=published,
            **model.model_dump(),
        )


def read_profile(path: Path) -> AppArgs:
    """Read the ``args`` of the application in a Serve file.

    Raises:
        ProfileError: The file does not exist, or is not a Serve file of afa.
    """
    try:
        (application,) = yaml.safe_load(path.read_text(encoding="utf-8"))["applications"]
        return AppArgs.model_validate(application.get("args", {}))
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ProfileError(f"{path} is not a Serve file of afa: {error}") from error
