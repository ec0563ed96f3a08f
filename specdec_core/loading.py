"""From a name or a folder to a model and its tokenizer, with one clear sentence where that fails.

A folder is read where it lies. A hub name is looked up in the local hub cache first and downloaded
only if it is not there. Nothing is unpickled (safetensors only) and no code of a model's is run.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
HUB_TIMEOUT = 5.0  # seconds; a hub that answers at all answers within this
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model")
MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]


def parse_device(device: str | torch.device) -> torch.device:
    """The device meant by "cpu", "cuda" or "cuda:1". Raises ValueError where it is not there."""
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(_device_sentence(device)) from error
    if parsed.type not in ("cpu", "cuda"):
        raise ValueError(_device_sentence(device))
    if parsed.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ValueError(
                f"{device} is asked for, but torch {torch.__version__} sees no CUDA device here: "
                'use device="cpu".'
            )
        if (parsed.index or 0) >= count:
            raise ValueError(
                f"{device} is asked for, but the CUDA devices here are cuda:0 to cuda:{count - 1}."
            )
    return parsed


def _device_sentence(device: object) -> str:
    return f'device must be "cpu", "cuda" or a numbered one such as "cuda:1", not {device!r}.'


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The torch dtype meant by a name or a dtype. Raises ValueError for any other than four."""
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}.")
    return found


def find_folder(name: str | Path) -> Path:
    """The local folder of a model: `name` itself, or the hub's copy of it, downloaded if need be.

    Raises ValueError where there is no such folder, in the hub cache neither, and the hub cannot
    be reached or does not have it.
    """
    if not str(name):
        raise ValueError("The name of a model is empty: give a folder or a name on the hub.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ValueError(f"{name} is a file: give the folder that holds config.json.")
    cached = cached_folder(str(name))
    return cached or _download(str(name))


def cached_folder(name: str) -> Path | None:
    """The copy of hub model `name` in the local hub cache, if all its weights are there."""
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):
        return None
    return folder if (folder / "config.json").exists() and _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = json.loads(index.read_text())["weight_map"].values()
        return all((folder / shard).exists() for shard in shards)
    return any(folder.glob("*.safetensors"))


def hub_reachable() -> bool:
    """Whether the hub answers within a few seconds; False where the user set it offline."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=HUB_TIMEOUT).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _download(name: str) -> Path:
    # Asked first: the hub's own client would retry for minutes.
    if not hub_reachable():
        raise ValueError(
            f"{name} is neither a folder here nor in the local hub cache, and the hub cannot be "
            "reached: check the path, or download the model where there is a network."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=MODEL_FILES, etag_timeout=HUB_TIMEOUT))
    except GatedRepoError as error:
        raise ValueError(f"{name} is gated: accept its terms on the hub, then log in.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ValueError(f"{name} is neither a folder here nor a model on the hub.") from error
    except OSError as error:
        raise ValueError(f"{name} could not be downloaded: {first_line(error)}") from error


def load_config(folder: Path, name: str) -> PretrainedConfig:
    """The config of a decoder-only model. Raises ValueError for anything else."""
    if not (folder / "config.json").exists():
        raise ValueError(
            f"{name} holds no config.json, so it is no model: give the folder that holds "
            "config.json, the weights and the tokenizer."
        )
    with quiet():
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"transformers {transformers.__version__} cannot read the config of {name}: "
                f"{first_line(error)}"
            ) from error
    if config.is_encoder_decoder:
        raise ValueError(f"{name} is an encoder-decoder; this package runs decoder-only models.")
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ValueError(f"{name} ({config.model_type}) is not a causal language model.")
    return config


def load_model(
    name: str | Path, device: str | torch.device = "cpu", dtype: str | torch.dtype = "float32"
) -> PreTrainedModel:
    """A causal language model in evaluation mode, on `device`, its parameters in `dtype`.

    name: a folder, or a model's name on the hub. Raises ValueError, in one sentence, where it
    cannot be loaded whole.
    """
    device, dtype = parse_device(device), parse_dtype(dtype)
    folder, name = find_folder(name), str(name)
    config = load_config(folder, name)
    if not _has_weights(folder):
        raise ValueError(f"{name} has no complete weights in the safetensors format.")
    with quiet():
        try:
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, local_files_only=True, use_safetensors=True,
                output_loading_info=True,
            )  # fmt: skip
        # Damaged files raise errors of many libraries, safetensors' own among them.
        except Exception as error:
            raise ValueError(f"{name} could not be loaded: {first_line(error)}") from error
    if info["missing_keys"]:
        # transformers would go on with random numbers in their place.
        raise ValueError(f"{name} lacks weights, {min(info['missing_keys'])} among them.")
    model.config._name_or_path = name
    return model.eval().to(device)


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model. Raises ValueError where there is no model, or none with it."""
    folder = find_folder(name)
    load_config(folder, str(name))
    if not any(file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)):
        raise ValueError(f"{name} holds no tokenizer beside the model.")
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:
            raise ValueError(
                f"{name} has no tokenizer that can be read: {first_line(error)}"
            ) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, with the full stop it may lack."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(" .:") + "."


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no warnings from transformers, and its settings back afterwards."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
