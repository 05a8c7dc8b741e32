"""Real models with mutable state, built offline from their config classes with random weights.

`MODELS` maps a name to a function that builds a `Model`: one decode or streaming step. In
`*_inputs` the state is user inputs that are mutated in place, as transformers' StaticCache does
when it is passed in; in `*_buffers` it is registered buffers. Export and lower under
torch.no_grad(). No model's library is imported before its function is called.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

VOCABULARY = 128
LENGTH = 32

Tensors = tuple[torch.Tensor, ...]

_number = itertools.count()


@dataclasses.dataclass(frozen=True)
class Model:
    """One exportable step of a model.

    Attributes:
        module: In the mode in which it is exported.
        fresh: Step -> the positional arguments, without the state.
        state: Tensors of the state that are inputs; empty when the state lives in buffers.
        pack: State tensors -> the trailing arguments that hold them.
        dynamic_shapes: For torch.export.export.
    """

    module: nn.Module
    fresh: Callable[[int], tuple[Any, ...]]
    state: Tensors = ()
    pack: Callable[[Tensors], tuple[Any, ...]] = lambda state: state
    dynamic_shapes: Any = None

    def arguments(self, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one step, with the state as it is at first."""
        return (*self.fresh(step), *self.pack(tuple(t.clone() for t in self.state))), {}


MODELS: dict[str, Callable[[], Model]] = {}


def model(build: Callable[[], Model]) -> Callable[[], Model]:
    """Registers a model under its function's name."""
    MODELS[build.__name__] = build
    return build


# State as user inputs, for any transformers model with a cache


def _slots(cache: Any) -> list[tuple[dict[str, Any], str]]:
    """(owner, key) of every tensor that a transformers cache holds, in a fixed order."""
    cache = getattr(cache, "self_attention_cache", cache)
    slots = []
    for layer in cache.layers:
        names = ("keys", "values", "cumulative_length")
        tensors = [n for n in names if isinstance(getattr(layer, n, None), torch.Tensor)]
        slots += [(layer.__dict__, name) for name in tensors]
        for name in ("conv_states", "recurrent_states"):
            states = getattr(layer, name, None) or {}
            slots += [(states, k) for k, v in states.items() if isinstance(v, torch.Tensor)]
    return slots


class CacheAsInputs(nn.Module):
    """forward(*inputs, *state): puts the state tensors into the cache, then runs the model."""

    def __init__(self, net: nn.Module, cache: Any, call: Callable[..., Any]) -> None:
        super().__init__()
        self.net, self.call = net, call
        self.cache = [cache]  # in a list: the cache is no submodule
        self.slots = _slots(cache)

    def state(self) -> Tensors:
        return tuple(owner[key].detach().clone() for owner, key in self.slots)

    def forward(self, *args):
        inputs = len(args) - len(self.slots)
        for (owner, key), value in zip(self.slots, args[inputs:], strict=True):
            owner[key] = value
        return self.call(self.net, self.cache[0], *args[:inputs])


class CacheAsBuffers(CacheAsInputs):
    """The same with the tensors as buffers that start at zero."""

    def __init__(self, net: nn.Module, cache: Any, call: Callable[..., Any]) -> None:
        super().__init__(net, cache, call)
        for i, value in enumerate(self.state()):
            self.register_buffer(f"state_{i}", torch.zeros_like(value), persistent=False)

    def forward(self, *inputs):
        state = (getattr(self, f"state_{i}") for i in range(len(self.slots)))
        return super().forward(*inputs, *state)


def _causal_lm(config: str, *, dtype=torch.float32, attention="eager", **sizes) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, config)(**sizes)
    made.use_cache = True
    made._experts_implementation = "batched_mm"  # the default, grouped_mm, has no out variant
    net = transformers.AutoModelForCausalLM.from_config(made, attn_implementation=attention)
    return net.eval().to(dtype)


def _token(i: int) -> torch.Tensor:
    return torch.tensor([[(7 * i + 3) % VOCABULARY]])


def _decode(net: nn.Module, cache: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return net(input_ids=ids, cache=cache, use_cache=True, position_ids=positions).logits


def _prefilled(net: nn.Module, prompt: int, batch: int, length: int) -> Any:
    import transformers

    cache = transformers.StaticCache(config=net.config, max_cache_len=length)
    with torch.no_grad():
        ids = torch.arange(prompt).repeat(batch, 1) % VOCABULARY
        net(input_ids=ids, cache=cache, use_cache=True)
    return cache


def _with_input_cache(net: nn.Module, prompt=3, batch=1, length=LENGTH) -> Model:
    module = CacheAsInputs(net, _prefilled(net, prompt, batch, length), _decode).eval()

    def fresh(i):
        return _token(i).repeat(batch, 1), torch.tensor([[prompt + i]]).repeat(batch, 1)

    return Model(module, fresh, module.state())


def _with_buffer_cache(net: nn.Module) -> Model:
    module = CacheAsBuffers(net, _prefilled(net, 3, 1, LENGTH), _decode).eval()
    return Model(module, lambda i: (_token(i), torch.tensor([[i]])))


_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LFM2 = {**_SIZES, "layer_types": ["conv", "full_attention"], "block_ff_dim": 64}
_MAMBA = {"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}


def _llama(**changes) -> nn.Module:
    return _causal_lm("LlamaConfig", **{**_SIZES, **changes})


@model
def llama_inputs() -> Model:
    return _with_input_cache(_llama())


@model
def llama_inputs_batch() -> Model:
    """Batch as a dynamic dimension of tokens and caches."""
    made = _with_input_cache(_llama(), batch=2)
    batch = {0: torch.export.Dim("batch", min=1, max=8)}
    shapes = tuple(batch if t.dim() > 1 else None for t in made.arguments(0)[0])
    return dataclasses.replace(made, dynamic_shapes=(shapes,))


@model
def llama_inputs_bf16() -> Model:
    return _with_input_cache(_llama(dtype=torch.bfloat16))


@model
def llama_inputs_sdpa() -> Model:
    return _with_input_cache(_llama(attention="sdpa"))


@model
def llama_inputs_large() -> Model:
    """Big enough to see the cost of a copy."""
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 1024}
    return _with_input_cache(_llama(hidden_size=512, intermediate_size=512, **heads), length=1024)


@model
def llama_static_cache_pytree() -> Model:
    """A StaticCache itself as an input, registered as a pytree node."""
    import transformers
    from torch.utils import _pytree as pytree

    net = _llama()

    class Cache(transformers.StaticCache):
        """A class of its own: a registration reaches every other model in the process."""

        def __init__(self, tensors):
            super().__init__(config=net.config, max_cache_len=LENGTH)
            for i, layer in enumerate(self.layers):
                layer.keys, layer.values, layer.cumulative_length = tensors[3 * i : 3 * i + 3]
                layer.is_initialized, layer.device = True, torch.device("cpu")

    def flatten(cache):
        return [owner[key] for owner, key in _slots(cache)], None

    def flatten_with_keys(cache):
        children, context = flatten(cache)
        return [(pytree.SequenceKey(i), child) for i, child in enumerate(children)], context

    pytree.register_pytree_node(
        Cache,
        flatten,
        lambda children, _: Cache(children),
        serialized_type_name=f"zoo_models.Cache.{next(_number)}",
        flatten_with_keys_fn=flatten_with_keys,
    )

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, ids, cache):
            return self.net(input_ids=ids, cache=cache, use_cache=True).logits

    state = CacheAsInputs(net, _prefilled(net, 3, 1, LENGTH), _decode).state()
    return Model(Step().eval(), lambda i: (_token(i),), state, lambda state: (Cache(state),))


@model
def gpt2_inputs() -> Model:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    return _with_input_cache(_causal_lm("GPT2Config", vocab_size=VOCABULARY, **sizes))


@model
def gemma2_inputs() -> Model:
    """A prompt longer than the window puts its layers into their steady state: roll, then copy_."""
    net = _causal_lm("Gemma2Config", **_SIZES, head_dim=8, sliding_window=8)
    return _with_input_cache(net, prompt=10)


@model
def lfm2_inputs() -> Model:
    return _with_input_cache(_causal_lm("Lfm2Config", **_LFM2))


@model
def lfm2_buffers() -> Model:
    return _with_buffer_cache(_causal_lm("Lfm2Config", **_LFM2))


@model
def mamba_inputs() -> Model:
    return _with_input_cache(_causal_lm("MambaConfig", **_MAMBA))


@model
def mamba_buffers() -> Model:
    return _with_buffer_cache(_causal_lm("MambaConfig", **_MAMBA))


@model
def mamba2_inputs() -> Model:
    heads = {"head_dim": 16, "num_heads": 4, "expand": 2, "n_groups": 1, "chunk_size": 8}
    return _with_input_cache(_causal_lm("Mamba2Config", **_MAMBA, **heads))


@model
def jamba_inputs() -> Model:
    sizes = {
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    }
    return _with_input_cache(_causal_lm("JambaConfig", **_SIZES, **sizes))


@model
def falcon_h1_inputs() -> Model:
    sizes = {
        "head_dim": 8,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
    }
    return _with_input_cache(_causal_lm("FalconH1Config", **_SIZES, **sizes))


# Encoder and decoder


def _seq2seq(net: nn.Module) -> Model:
    """transformers' own recipe, its caches turned from buffers into inputs."""
    from transformers.integrations.executorch import Seq2SeqLMDecoderExportableModuleWithStaticCache

    if not hasattr(net, "lm_head"):
        net.lm_head = net.proj_out
    recipe = Seq2SeqLMDecoderExportableModuleWithStaticCache(net, LENGTH, 1).eval()
    cache = recipe.static_cache
    for name, _ in list(recipe.named_buffers(recurse=False)):
        delattr(recipe, name)
    module = CacheAsInputs(recipe, cache, lambda m, _cache, *inputs: m(*inputs)).eval()
    encoded = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(1))
    return Model(module, lambda i: (_token(i), encoded, torch.tensor([i])), module.state())


@model
def t5_inputs() -> Model:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return _seq2seq(T5ForConditionalGeneration(config).eval())


@model
def whisper_inputs() -> Model:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return _seq2seq(WhisperForConditionalGeneration(config).eval())


@model
def rwkv_inputs() -> Model:
    """The state is a list of tensors that the model writes into in place."""
    from transformers import RwkvConfig, RwkvForCausalLM

    torch.manual_seed(0)
    config = RwkvConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        attention_hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        context_length=64,
        rescale_every=0,
    )
    net = RwkvForCausalLM(config).eval()
    with torch.no_grad():
        state = tuple(s.clone() for s in net(torch.arange(3)[None], use_cache=True).state)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, ids, *state):
            return self.net(ids, state=list(state), use_cache=True).logits

    return Model(Step().eval(), lambda i: (_token(i),), state)


# BatchNorm in training mode: running statistics and step counters are mutated buffers


@model
def resnet_bn() -> Model:
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    net = ResNetForImageClassification(config)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x).logits

    def image(i):
        return (torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(i)),)

    return Model(Step().train(), image)


# Models that ship with executorch


class StateAsInputs(nn.Module):
    """Turns the named buffers of a module into trailing inputs that are mutated in place."""

    def __init__(self, module: nn.Module, wanted: set[str]) -> None:
        super().__init__()
        self.module = module
        self.slots = [
            (part, name, value.clone())
            for part in module.modules()
            for name, value in part._buffers.items()
            if value is not None and name in wanted
        ]
        for part, name, _ in self.slots:
            del part._buffers[name]
            setattr(part, name, None)

    def state(self) -> Tensors:
        return tuple(value.clone() for _, _, value in self.slots)

    def forward(self, *args):
        inputs = len(args) - len(self.slots)
        for (part, name, _), value in zip(self.slots, args[inputs:], strict=True):
            part.__dict__[name] = value
        return self.module(*args[:inputs])


class _LlamaStep(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids, position):
        out = self.net(ids, {"input_pos": position})
        return out[0] if isinstance(out, tuple) else out


def _et_arguments(**changes):
    from executorch.examples.models.llama.model_args import ModelArgs

    sizes = {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "vocab_size": VOCABULARY,
        "hidden_dim": 64,
        "head_dim": 8,
        "max_seq_len": LENGTH,
        "max_context_len": LENGTH,
        "use_kv_cache": True,
        "enable_dynamic_shape": False,
        "generate_full_logits": True,
    }
    return ModelArgs(**{**sizes, **changes})


def _et_transformer(**changes) -> nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer

    torch.manual_seed(0)
    net = construct_transformer(_et_arguments(**changes)).eval()
    for p in net.parameters():
        nn.init.normal_(p, std=0.2)
    return net


def _et_fresh(i: int) -> tuple[Any, ...]:
    return _token(i), torch.tensor([i])


def _et_inputs(*state: str, **changes) -> Model:
    module = StateAsInputs(_LlamaStep(_et_transformer(**changes)).eval(), set(state)).eval()
    return Model(module, _et_fresh, module.state())


@model
def et_llama_buffers() -> Model:
    return Model(_LlamaStep(_et_transformer()).eval(), _et_fresh)


@model
def et_llama_inputs() -> Model:
    return _et_inputs("k_cache", "v_cache")


@model
def et_lfm2_inputs() -> Model:
    layers = ["conv", "full_attention"]
    return _et_inputs("k_cache", "v_cache", "conv_state", layer_types=layers)


@model
def et_qwen3_5_inputs() -> Model:
    return _et_inputs(
        "k_cache",
        "v_cache",
        "conv_state",
        "recurrent_state",
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        use_q_gate=True,
        attention_type="mha",
    )


@model
def et_static_attention() -> Model:
    """Caches are read-only inputs and updates are outputs: nothing is mutated."""
    from executorch.examples.models.llama.static_attention import (
        StaticAttentionIOManager,
        transform_attention_mha_to_static_attention,
    )

    net = _et_transformer(use_kv_cache=False)
    static = transform_attention_mha_to_static_attention(net, split_mha=False).eval()
    given = _et_arguments(attention_type="static_mha", use_kv_cache=False)
    manager = StaticAttentionIOManager(given, 1, LENGTH - 1)
    options = {
        "masks": manager.masks,
        "freqs_cos_override": manager.freqs_cos[:1],
        "freqs_sin_override": manager.freqs_sin[:1],
        "in_cache_state": (manager.k_caches, manager.v_caches),
    }
    return Model(static, lambda i: (_token(i), options))


def _sound(i: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(i))


@model
def silero_vad() -> Model:
    """LSTM state in, LSTM state out, functional as shipped: nothing is mutated."""
    from executorch.examples.models.silero_vad.export_silero_vad import INPUT_SIZE, SileroVAD16k

    torch.manual_seed(0)
    return Model(
        SileroVAD16k().eval(), lambda i: (_sound(i, 1, INPUT_SIZE), torch.zeros(2, 1, 128))
    )


@model
def silero_vad_inputs() -> Model:
    """The same with the new state written back into its input, as streaming code does."""
    from executorch.examples.models.silero_vad.export_silero_vad import INPUT_SIZE, SileroVAD16k

    torch.manual_seed(0)

    class Stream(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = SileroVAD16k()

        def forward(self, x, state):
            y, new = self.net(x, state)
            state.copy_(new)
            return y

    return Model(Stream().eval(), lambda i: (_sound(i, 1, INPUT_SIZE),), (torch.zeros(2, 1, 128),))


@model
def et_lstm_inputs() -> Model:
    """executorch's example LSTM, hidden and cell state written back into their inputs."""
    from executorch.examples.models.lstm.model import LSTMModel

    torch.manual_seed(0)

    class Stream(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = LSTMModel().get_eager_model()

        def forward(self, x, h, c):
            y, (new_h, new_c) = self.net(x, (h, c))
            h.copy_(new_h)
            c.copy_(new_c)
            return y

    state = (torch.zeros(2, 3, 20), torch.zeros(2, 3, 20))
    return Model(Stream().eval(), lambda i: (_sound(i, 1, 3, 10),), state)
