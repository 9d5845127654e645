"""quaver.Linear: a linear layer of PyTorch whose three GEMMs run in a recipe's formats.

It reads and writes PyTorch's own tensors, on the CPU or on a GPU, where its work goes onto PyTorch's current stream and
nothing waits for it. All memory that grows with the batch is PyTorch's.
"""

from __future__ import annotations

import contextlib
import ctypes
import zlib
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import torch

from ._library import CLinearBackward, CLinearForward, CLinearMemory, call
from .layer import LinearLayer
from .quantized import Statistics

FORMATS = {torch.float32: 0, torch.bfloat16: 2}  # as the C interface numbers them


def _format(tensor: torch.Tensor, name: str) -> int:
    if tensor.dtype == torch.float32 or (tensor.dtype == torch.bfloat16 and tensor.is_cuda):
        return FORMATS[tensor.dtype]
    raise TypeError(
        f"{name} is {tensor.dtype} on {tensor.device}: quaver.Linear computes with float32, and on a GPU with bfloat16; "
        f"convert {name}, or use torch.autocast with bfloat16"
    )


# The handle of a GPU's current stream by the GPU's number; what PyTorch's own compiler calls is the fastest way to it.
_stream_of_gpu: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda gpu: torch.cuda.current_stream(gpu).cuda_stream
)


def stream_of(device: torch.device) -> Optional[int]:
    return _stream_of_gpu(device.index) if device.type == "cuda" else None


def _autocast_dtype() -> torch.dtype:
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("cuda")
    return torch.get_autocast_gpu_dtype()  # PyTorch before 2.4


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """As the library can read it: the tensor's own memory, unless it is not contiguous or not aligned."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.is_cuda and tensor.data_ptr() % 16 else tensor


def _rows(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    return readable(tensor if tensor.dim() == 2 else tensor.reshape(-1, columns))


def _shaped(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    return rows if len(shape) == 2 else rows.view(*shape[:-1], rows.shape[1])


def memory_on(size: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _identity(weight: torch.Tensor) -> Any:
    """Differs where the weight has changed; None where nothing tells. PyTorch does not count what is written through
    weight.data, so that on the CPU the values are looked at, for a few percent of the time of a pass."""
    if not weight.is_cuda:
        return weight.data_ptr(), zlib.crc32(weight.detach().numpy())
    return None if weight.is_inference() else (weight.data_ptr(), weight._version)


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, module: "Linear", train: bool
    ) -> torch.Tensor:
        device = x.device
        rows = _rows(x, module.in_features)
        tokens, data_format = rows.shape[0], _format(x, "x")
        handle = module._handle_with_weight(weight)
        needed = module._memory_of(handle, tokens, data_format)
        kept = memory_on(needed.kept if train else 0, device)
        scratch = memory_on(needed.forward_scratch, device)
        bias_values = None if bias is None else readable(bias.float())
        y = torch.empty(tokens, module.out_features, dtype=x.dtype, device=device)
        made = CLinearForward(
            tokens=tokens,
            format=data_format,
            pass_=0 if train else 1,
            x=rows.data_ptr(),
            bias=None if bias_values is None else bias_values.data_ptr(),
            y=y.data_ptr(),
            kept=kept.data_ptr(),
            kept_bytes=kept.numel(),
            scratch=scratch.data_ptr(),
            scratch_bytes=scratch.numel(),
            stream=stream_of(device),
        )
        call("linear_run_forward", handle, ctypes.byref(made))
        if train:
            # The weight too: PyTorch then refuses a backward pass after a change of it.
            ctx.save_for_backward(kept if needed.kept else rows, weight)
            ctx.module, ctx.x_is_kept, ctx.scratch_bytes = module, not needed.kept, needed.backward_scratch
            ctx.input_shape, ctx.data_format = x.shape, data_format
        return _shaped(y, x.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        kept, weight = ctx.saved_tensors
        module, device = ctx.module, gradient.device
        dy = _rows(gradient, module.out_features)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        dx = torch.empty(dy.shape[0], module.in_features, dtype=dy.dtype, device=device) if needs_x else None
        dw = torch.empty_like(weight) if needs_weight else None
        db = torch.zeros(module.out_features, dtype=torch.float32, device=device) if needs_bias else None
        handle = module._handle_for_backward()
        scratch = memory_on(ctx.scratch_bytes, device)
        made = CLinearBackward(
            tokens=dy.shape[0],
            format=ctx.data_format,
            weight_format=FORMATS[weight.dtype],
            x=kept.data_ptr() if ctx.x_is_kept else None,
            dy=dy.data_ptr(),
            dx=None if dx is None else dx.data_ptr(),
            weight_gradient=None if dw is None else dw.data_ptr(),
            bias_gradient=None if db is None else db.data_ptr(),
            kept=None if ctx.x_is_kept else kept.data_ptr(),
            kept_bytes=0 if ctx.x_is_kept else kept.numel(),
            scratch=scratch.data_ptr(),
            scratch_bytes=scratch.numel(),
            stream=stream_of(device),
        )
        call("linear_run_backward", handle, ctypes.byref(made))
        if db is not None:
            db = db.to(module.bias.dtype)
        return None if dx is None else _shaped(dx, ctx.input_shape), dw, db, None, None


def _uncompiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """torch.compile leaves it as it is: it cannot look into a library."""
    compiler = getattr(torch, "compiler", None)
    return compiler.disable(function) if hasattr(compiler, "disable") else function


class Linear(torch.nn.Module):
    """Takes the place of torch.nn.Linear. The result has the type of x: float32, or on a GPU bfloat16, also under
    torch.autocast. Weights are float32, or on a GPU bfloat16, and are cast when they have changed.

    Call end_step() after optimizer.step(), or quaver.end_step(model) for all layers at once: delayed scales are set and
    statistics read there.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        recipe: str = "fp8-current",
        settings: Sequence[str] = (),
        seed: int = 1,
        threads: int = 0,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        reference = torch.nn.Linear(in_features, out_features, bias, device=device, dtype=dtype)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = reference.weight
        self.bias = reference.bias
        self.recipe = recipe
        self._options = {"recipe": recipe, "settings": tuple(settings), "seed": seed, "threads": threads}
        self._full_statistics = False
        self._layer: Optional[LinearLayer] = None
        self._saved: Optional[str] = None  # state for the next layer that is made
        self._device: Optional[torch.device] = None  # where the layer is
        self._cast_weight: Any = None  # what the layer's codes were cast from
        self._memory: dict[tuple[int, int], CLinearMemory] = {}  # by tokens and format
        self._require_layer()

    @classmethod
    def from_torch(cls, linear: torch.nn.Linear, **options: Any) -> "Linear":
        """With the parameters of an existing layer, which it shares."""
        weight = linear.weight
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            device=weight.device,
            dtype=weight.dtype,
            **options,
        )
        made.weight = weight
        made.bias = linear.bias
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda and torch.is_autocast_enabled():
            x = x.to(_autocast_dtype())
        weight, bias = self.weight, self.bias
        self._check(x, weight)
        if x.numel() == 0:
            return torch.nn.functional.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        wanted = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
        return self._run(x, weight, bias, wanted and torch.is_grad_enabled())

    @_uncompiled
    def _run(self, x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], train: bool) -> torch.Tensor:
        result: torch.Tensor = _LinearFunction.apply(x, weight, bias, self, train)
        return result

    def end_step(self) -> None:
        """Sets the next step's delayed scales from what this one's casts saw; the weight is cast again."""
        end_step([self])

    def statistics(self, role: str) -> Statistics:
        """Of the casts of "x", "w" or "dy" in the step that end_step() ended last."""
        return self._require_layer().statistics(role)

    def scale(self, role: str) -> float:
        """s in q = cast(x * s) of delayed and static scaling; 0: not known yet."""
        return self._require_layer().scale(role)

    def collect_full_statistics(self, full: bool = True) -> None:
        """What the casts from now on collect: counts and amax, or full statistics."""
        self._full_statistics = full
        self._require_layer().collect_full_statistics(full)
        self._memory.clear()

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, recipe={self.recipe!r}"

    def _check(self, x: torch.Tensor, weight: torch.Tensor) -> None:
        _format(x, "x")
        _format(weight, "the weight")
        if x.device != weight.device:
            raise ValueError(f"x is on {x.device} and the weight on {weight.device}: move one of them")
        if x.dim() < 1 or x.shape[-1] != self.in_features:
            raise ValueError(f"x is {tuple(x.shape)}: its last dimension must be {self.in_features}")
        if not weight.is_contiguous():
            raise ValueError("the weight is not contiguous: pass weight.contiguous()")

    def get_extra_state(self) -> str:
        """Scales, their histories and the count of casts, for state_dict(). Save after end_step()."""
        return self._require_layer().state()

    def set_extra_state(self, state: str) -> None:
        self._require_layer().load_state(state)
        self._cast_weight = None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """The parameters of a torch.nn.Linear will do: scales begin anew then."""
        super()._load_from_state_dict(state_dict, prefix, *rest)
        missing_keys = rest[2]
        if prefix + "_extra_state" in missing_keys:
            missing_keys.remove(prefix + "_extra_state")

    def _require_layer(self) -> LinearLayer:
        """The library's layer on the weight's device. A move to another one takes the state with it."""
        device = self.weight.device
        if self._layer is not None and self._device == device:
            return self._layer
        state = self._state()
        on_gpu = device.type == "cuda"
        if not on_gpu and device.type != "cpu":
            raise ValueError(f"the weight is on {device}: quaver.Linear runs on CPUs and CUDA GPUs")
        number = device.index or 0
        # Making an engine changes the current GPU.
        with torch.cuda.device(number) if on_gpu else contextlib.nullcontext():
            options = {**self._options, "device": device.type, "gpu": number}
            self._layer = LinearLayer(self.in_features, self.out_features, **options)  # type: ignore[arg-type]
        self._layer.collect_full_statistics(self._full_statistics)
        if state is not None:
            self._layer.load_state(state)
        self._saved = None
        self._device = device
        self._cast_weight = None
        self._memory.clear()
        return self._layer

    def _memory_of(self, handle: ctypes.c_void_p, tokens: int, data_format: int) -> CLinearMemory:
        """What a pass needs, remembered for some numbers of tokens."""
        found = self._memory.get((tokens, data_format))
        if found is None:
            found = CLinearMemory()
            call("linear_pass_memory", handle, tokens, data_format, ctypes.byref(found))
            if len(self._memory) >= 64:
                self._memory.clear()
            self._memory[tokens, data_format] = found
        return found

    def _handle_with_weight(self, weight: torch.Tensor) -> ctypes.c_void_p:
        """Casts the weight where it has changed since its last cast: micro-batches of a step use the same codes."""
        handle = self._require_layer()._handle
        now = _identity(weight)
        if now is None or now != self._cast_weight:
            call("linear_set_device_weight", handle, weight.data_ptr(), FORMATS[weight.dtype], stream_of(weight.device))
            self._cast_weight = now
        return handle

    def _handle_for_backward(self) -> ctypes.c_void_p:
        if self._layer is None or self._device != self.weight.device:
            raise RuntimeError("the layer was moved between forward and backward")
        return self._layer._handle

    def _state(self) -> Optional[str]:
        return self._saved if self._layer is None else self._layer.state()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles go on as the layer would; statistics begin anew."""
        library = {"_layer": None, "_saved": self._state(), "_device": None, "_cast_weight": None, "_memory": {}}
        return {**self.__dict__, **library}


def end_step(layers: Union[torch.nn.Module, Iterable[torch.nn.Module]]) -> None:
    """Linear.end_step() of every quaver.Linear in a model or list, with one wait per GPU."""
    listed = layers.modules() if isinstance(layers, torch.nn.Module) else layers
    chosen = [layer for layer in listed if isinstance(layer, Linear)]
    handles = (ctypes.c_void_p * max(len(chosen), 1))(*[layer._require_layer()._handle.value for layer in chosen])
    call("linear_end_steps", handles, len(chosen))
    for layer in chosen:
        layer._cast_weight = None
