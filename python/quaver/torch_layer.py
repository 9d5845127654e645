"""quaver.Linear: a linear layer of PyTorch whose three GEMMs run in a recipe's formats. CPU tensors."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from .layer import LinearLayer
from .quantized import Statistics


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, module: "Linear") -> torch.Tensor:
        layer = module._layer
        module._passes += 1
        ctx.module, ctx.number, ctx.input_shape = module, module._passes, x.shape
        layer.set_weight(weight)
        if bias is not None:
            layer.set_bias(bias)
        rows = x.reshape(-1, layer.in_features).contiguous()
        y = torch.from_numpy(layer.forward(rows, train=any(ctx.needs_input_grad)))
        return y.reshape(*x.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        if ctx.number != ctx.module._passes:
            raise RuntimeError("the layer ran again before this backward(): use one quaver.Linear for each use in the model")
        layer = ctx.module._layer
        layer.clear_gradients()
        dx = torch.from_numpy(layer.backward(dy.reshape(-1, layer.out_features).contiguous()))
        dw = torch.from_numpy(layer.weight_gradient())
        db = layer.bias_gradient()
        return dx.reshape(ctx.input_shape), dw, None if db is None else torch.from_numpy(db), None


class Linear(torch.nn.Module):
    """Takes the place of torch.nn.Linear. One forward pass at a time: backward() of a pass comes before the next
    forward() in training. Call end_step() after optimizer.step(): delayed scales are set there.
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
    ) -> None:
        super().__init__()
        reference = torch.nn.Linear(in_features, out_features, bias)
        self.weight = reference.weight
        self.bias = reference.bias
        self.recipe = recipe
        self._passes = 0
        self._layer = LinearLayer(
            in_features, out_features, bias=bias, recipe=recipe, settings=settings, seed=seed, threads=threads
        )

    @classmethod
    def from_torch(cls, linear: torch.nn.Linear, **options: Any) -> "Linear":
        """With the parameters of an existing layer, which it shares."""
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, **options)
        made.weight = linear.weight
        made.bias = linear.bias
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _LinearFunction.apply(x, self.weight, self.bias, self)
        return result

    def end_step(self) -> None:
        self._layer.end_step()

    def statistics(self, role: str) -> Statistics:
        return self._layer.statistics(role)

    def extra_repr(self) -> str:
        return f"{self._layer.in_features}, {self._layer.out_features}, recipe={self.recipe!r}"
