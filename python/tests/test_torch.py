"""quaver.Linear on CPU tensors, and on CUDA tensors where there is a GPU that PyTorch and quaver can use."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import unittest
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    print("skipped: tests of quaver.Linear, because PyTorch is not installed")
    sys.exit(0)

import quaver


def why_no_gpu() -> str:
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    try:
        quaver.LinearLayer(16, 16, device="cuda")
    except quaver.Error as error:
        return str(error)
    return ""


WHY_NO_GPU = why_no_gpu()
RECIPES = ["fp8-delayed", "fp8-current", "fp8-row", "fp8-block", "bf16", "fp32"]


def relative_error(found: torch.Tensor, expected: Any) -> float:
    reference = torch.as_tensor(expected).detach().double().cpu()
    return float((found.detach().double().cpu() - reference).norm() / reference.norm())


SPECS = [
    quaver.Spec(),
    quaver.Spec(block="1x128"),
    quaver.Spec(format="e5m2", block="128x128"),
    quaver.Spec(format="e5m2", policy="static"),
    quaver.Spec(block="row", rounding="stochastic"),
    quaver.Spec(block="1x32", scale_format="e8m0"),
    quaver.Spec(format="e2m1", block="1x16", scale_format="e4m3", rotation="hadamard", rounding="stochastic"),
    quaver.Spec(format="e2m1", block="16x16", scale_format="e4m3_4over6"),
    quaver.Spec(format="bf16", policy="unscaled"),
]


class Matrices(unittest.TestCase):
    """cast, quantize, dequantize and gemm: those of a GPU give what those of the CPU give."""

    device = "cpu"

    def randn(self, *shape: int, seed: int = 1) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(self.device)

    def both(self, x: torch.Tensor, spec: quaver.Spec, **options: Any) -> Any:
        return quaver.quantize(x, spec, **options), quaver.quantize(x.cpu().float(), spec, **options)

    def assert_same(self, found: Any, expected: Any) -> None:
        np.testing.assert_array_equal(torch.as_tensor(found).cpu().numpy(), np.asarray(expected))

    def test_codes_scales_and_statistics(self) -> None:
        for spec in SPECS:
            for side in ("rowwise", "columnwise"):
                for shape in ((96, 256), (33, 130)):
                    with self.subTest(spec=spec, side=side, shape=shape):
                        x = self.randn(*shape) * 3
                        options = {"side": side, "scale": 2.0, "seed": 7, "step": 3, "full_statistics": True}
                        found, expected = self.both(x, spec, **options)
                        self.assertEqual(found.shape, expected.shape)
                        self.assert_same(found.codes, expected.codes)
                        if expected.block_scales is not None:
                            self.assert_same(found.block_scales, expected.block_scales)
                        self.assertEqual(found.tensor_scale, expected.tensor_scale)
                        self.assert_same(found.dequantize(), expected.dequantize())
                        ours, theirs = found.statistics, expected.statistics
                        for name in ("count", "nonfinite", "saturated", "underflowed", "amax", "binades"):
                            self.assertEqual(getattr(ours, name), getattr(theirs, name), name)
                        self.assertAlmostEqual(ours.sqnr_db, theirs.sqnr_db, places=6)

    def test_casts(self) -> None:
        special = torch.tensor([0.0, -0.0, 1e-9, 448.0, 1e9, -1e9, float("inf"), float("-inf"), float("nan")])
        for x in (self.randn(5, 7, 3), self.randn(4096) * 100, special.to(self.device)):
            for name in ("f32", "tf32", "bf16", "f16", "e4m3", "e5m2", "e2m1"):
                found = quaver.cast(x, name)
                self.assertEqual((found.shape, found.device), (x.shape, x.device))
                np.testing.assert_array_equal(found.cpu().numpy(), quaver.cast(x.cpu(), name).numpy(), name)

    def test_products(self) -> None:
        for spec in SPECS:
            with self.subTest(spec=spec):
                options = {"scale": 2.0, "seed": 7}
                a, reference_a = self.both(self.randn(64, 256), spec, **options)
                b, reference_b = self.both(self.randn(48, 256, seed=2), spec, **options)
                expected = quaver.gemm(reference_a, reference_b)
                limit = 1e-6 if self.device == "cpu" else 5e-4  # Hopper's FP8 sums keep 14 bits for 128 products
                self.assertLess(relative_error(torch.as_tensor(quaver.gemm(a, b)), expected), limit)

    def test_refuses_what_it_cannot_read(self) -> None:
        with self.assertRaises(ValueError):
            quaver.quantize(self.randn(8, 8).t()[:, :5])
        with self.assertRaises(ValueError):
            quaver.quantize(self.randn(8))
        with self.assertRaises(TypeError):
            quaver.quantize(self.randn(8, 8).double())
        with self.assertRaises(TypeError):
            quaver.quantize(self.randn(8, 8)).dequantize(torch.float64)
        with self.assertRaises(quaver.Error):
            quaver.gemm(quaver.quantize(self.randn(8, 16)), quaver.quantize(self.randn(8, 32)))


@unittest.skipIf(WHY_NO_GPU, WHY_NO_GPU)
class CudaMatrices(Matrices):
    device = "cuda"

    def test_many_matrices_come_and_go(self) -> None:
        x = self.randn(16, 64)
        expected = quaver.quantize(x).statistics
        for scale in range(1, 2600):
            spec = quaver.Spec(policy="static") if scale % 2 else quaver.Spec(block="1x128")
            quaver.quantize(x, spec, scale=float(scale))
        self.assertEqual(quaver.quantize(x).statistics, expected)

    def test_reads_and_gives_bfloat16(self) -> None:
        x = self.randn(64, 256).bfloat16()
        for spec in SPECS:
            found, expected = self.both(x, spec, scale=2.0)
            self.assert_same(found.codes, expected.codes)
            values = found.dequantize(torch.bfloat16)
            self.assertEqual(values.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(values, torch.as_tensor(expected.dequantize()).to(self.device).bfloat16()))
            product = quaver.gemm(found, found, torch.bfloat16)
            self.assertLess(relative_error(product, quaver.gemm(expected, expected)), 4e-3)

    def test_codes_are_views_without_a_copy(self) -> None:
        made = quaver.quantize(self.randn(64, 256))
        values = made.codes.view(torch.float8_e4m3fn).float() * made.tensor_scale
        self.assertTrue(torch.equal(values, made.dequantize()))
        made.codes.zero_()
        self.assertEqual(float(made.dequantize().abs().max()), 0.0)

    def test_takes_tensors_of_other_libraries(self) -> None:
        class Foreign:
            def __init__(self, tensor: torch.Tensor) -> None:
                self.tensor = tensor

            def __dlpack__(self, **options: Any) -> Any:
                return self.tensor.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return self.tensor.__dlpack_device__()

        x = self.randn(64, 256)
        self.assertTrue(torch.equal(quaver.quantize(Foreign(x)).codes, quaver.quantize(x).codes))

    def test_work_goes_onto_the_current_stream(self) -> None:
        x = self.randn(2048, 2048)
        expected = quaver.quantize(x).dequantize()
        late = torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(200_000_000)
            late.copy_(x)
            made = quaver.quantize(late)
            values = made.dequantize()
            self.assertFalse(torch.cuda.current_stream().query(), "something waited for the stream")
            torch.cuda.current_stream().synchronize()
        self.assertTrue(torch.equal(values, expected))

    def test_both_operands_are_on_one_device(self) -> None:
        x = self.randn(16, 16)
        with self.assertRaises(ValueError):
            quaver.gemm(quaver.quantize(x), quaver.quantize(x.cpu()))


class Cpu(unittest.TestCase):
    device = "cpu"

    def randn(self, *shape: int, seed: int = 1) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(self.device)

    def test_has_the_gradients_of_torch(self) -> None:
        reference = torch.nn.Linear(32, 16).to(self.device)
        layer = quaver.Linear.from_torch(reference, recipe="fp32")
        x = self.randn(4, 5, 32).requires_grad_()
        other = x.detach().clone().requires_grad_()
        layer(x).square().sum().backward()
        gradients = [layer.weight.grad.clone(), layer.bias.grad.clone()]
        layer.zero_grad()
        reference(other).square().sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        for found, expected in [(x.grad, other.grad), *zip(gradients, [reference.weight.grad, reference.bias.grad])]:
            self.assertLess(relative_error(found, expected), 1e-5)

    def test_is_linear_layer_on_the_cpu(self) -> None:
        """Two steps, the second one with delayed scales."""
        for recipe in RECIPES:
            with self.subTest(recipe):
                layer = quaver.Linear(256, 160, recipe=recipe, device=self.device)
                reference = quaver.LinearLayer(256, 160, bias=True, recipe=recipe)
                for step in range(2):
                    x = self.randn(96, 256, seed=step).requires_grad_()
                    dy = self.randn(96, 160, seed=9)
                    y = layer(x)
                    y.backward(dy)
                    reference.set_weight(layer.weight.detach().cpu())
                    reference.set_bias(layer.bias.detach().cpu())
                    self.assertLess(relative_error(y, reference.forward(x.detach().cpu())), 2e-3)
                    self.assertLess(relative_error(x.grad, reference.backward(dy.cpu())), 2e-3)
                    self.assertLess(relative_error(layer.weight.grad, reference.weight_gradient()), 2e-3)
                    self.assertLess(relative_error(layer.bias.grad, reference.bias_gradient()), 1e-5)
                    layer.zero_grad(set_to_none=True)
                    layer.end_step()
                    reference.end_step()
                    for role in ("x", "w", "dy"):
                        if reference.statistics(role).count:
                            self.assertEqual(layer.statistics(role).amax, reference.statistics(role).amax)
                        self.assertEqual(layer.scale(role), reference.scale(role))

    def test_keeps_the_codes_of_x_bit_for_bit(self) -> None:
        x = self.randn(128, 256)
        for recipe in ("fp8-current", "fp8-row", "fp8-block"):
            layer = quaver.Linear(256, 64, recipe=recipe, device=self.device)
            y = layer(x)
            kept = y.grad_fn.saved_tensors[0].cpu().numpy()
            spec = quaver.recipe_spec(recipe, "x", "columnwise")
            shared = self.device == "cpu" and spec == quaver.recipe_spec(recipe, "x", "rowwise")
            side = "rowwise" if shared and recipe == "fp8-current" else "columnwise"
            expected = quaver.quantize(x.cpu(), spec, side=side).codes
            np.testing.assert_array_equal(kept[: expected.size], expected.reshape(-1), recipe)

    def test_any_number_of_passes_may_be_open(self) -> None:
        layer = quaver.Linear(64, 64, recipe="fp8-current", device=self.device)
        x = self.randn(32, 64)
        layer(x).square().sum().backward()
        once = layer.weight.grad.clone()
        layer.weight.grad = None
        first, second = layer(x), layer(2 * x)
        first.square().sum().backward()
        self.assertTrue(torch.equal(layer.weight.grad, once))
        layer(layer(x)).sum().backward()
        second.sum().backward(retain_graph=True)
        second.sum().backward()

    def test_gradients_under_checkpointing_are_the_same(self) -> None:
        from torch.utils.checkpoint import checkpoint

        layer = quaver.Linear(64, 64, recipe="fp8-current", device=self.device)
        gradients = []

        def twice(x: torch.Tensor) -> torch.Tensor:
            return layer(torch.relu(layer(x)))

        for run in (twice, lambda x: checkpoint(twice, x, use_reentrant=False)):
            x = self.randn(32, 64).requires_grad_()
            run(x).square().sum().backward()
            gradients.append((x.grad, layer.weight.grad))
            layer.weight.grad = None
        self.assertTrue(torch.equal(gradients[0][0], gradients[1][0]))
        self.assertTrue(torch.equal(gradients[0][1], gradients[1][1]))

    def test_casts_a_weight_that_has_changed_and_no_other(self) -> None:
        layer = quaver.Linear(64, 64, bias=False, recipe="fp8-current", device=self.device)
        x = self.randn(8, 64)
        for _ in range(3):
            layer(x)
        layer.end_step()
        self.assertEqual(layer.statistics("w").count, 64 * 64)
        before = layer(x)
        with torch.no_grad():
            layer.weight.mul_(2)
        self.assertTrue(torch.equal(layer(x), 2 * before))
        layer.weight.data.mul_(2)  # which PyTorch does not count
        if self.device == "cuda":
            layer.end_step()
        self.assertTrue(torch.equal(layer(x), 4 * before))

    def test_a_weight_changed_before_backward_is_refused(self) -> None:
        layer = quaver.Linear(64, 64, device=self.device)
        y = layer(self.randn(8, 64))
        with torch.no_grad():
            layer.weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_computes_only_the_gradients_that_are_wanted(self) -> None:
        layer = quaver.Linear(64, 64, device=self.device)
        layer(self.randn(8, 64)).sum().backward()
        layer.requires_grad_(False)
        x = self.randn(8, 64).requires_grad_()
        weight = layer.weight.grad.clone()
        layer(x).sum().backward()
        self.assertIsNotNone(x.grad)
        self.assertTrue(torch.equal(layer.weight.grad, weight))
        with torch.no_grad():
            self.assertIsNone(layer(x).grad_fn)

    def test_evaluation_collects_nothing(self) -> None:
        layer = quaver.Linear(64, 64, device=self.device)
        with torch.no_grad():
            layer(self.randn(8, 64))
        layer.end_step()
        self.assertEqual(layer.statistics("x").count, 0)
        layer.collect_full_statistics()
        layer(self.randn(8, 64))
        layer.end_step()
        self.assertEqual(layer.statistics("x").count, 8 * 64)
        self.assertIsNotNone(layer.statistics("x").sqnr_db)

    def test_takes_views_copies_and_empty_batches(self) -> None:
        layer = quaver.Linear(64, 32, recipe="fp32", device=self.device)
        x = self.randn(64, 40)
        expected = torch.nn.functional.linear(x.t(), layer.weight, layer.bias)
        self.assertLess(relative_error(layer(x.t()), expected), 1e-5)
        shifted = self.randn(64 * 8 + 1)[1:].view(8, 64)
        expected = torch.nn.functional.linear(shifted, layer.weight, layer.bias)
        self.assertLess(relative_error(layer(shifted), expected), 1e-5)
        self.assertEqual(layer(torch.empty(0, 64, device=self.device)).shape, (0, 32))
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.assertTrue(torch.equal(other(shifted), layer(shifted)))

    def test_goes_on_where_it_was_saved(self) -> None:
        def losses(layer: quaver.Linear, first: int) -> list[float]:
            found = []
            for step in range(first, first + 3):
                layer.zero_grad()
                loss = (layer(self.randn(32, 64, seed=step)) - self.randn(32, 48, seed=100 + step)).square().mean()
                loss.backward()
                with torch.no_grad():
                    for parameter in layer.parameters():
                        parameter -= 0.1 * parameter.grad
                layer.end_step()
                found.append(float(loss))
            return found

        for recipe in ["fp8-delayed"] + (["nvfp4"] if self.device == "cpu" else []):  # which rounds dy at random
            layer = quaver.Linear(64, 48, recipe=recipe, device=self.device)
            losses(layer, 0)
            file = io.BytesIO()
            torch.save(layer.state_dict(), file)
            copied, pickled = copy.deepcopy(layer), pickle.dumps(layer)
            scale = layer.scale("dy")
            expected = losses(layer, 3)
            file.seek(0)
            loaded = quaver.Linear(64, 48, recipe=recipe, device=self.device)
            loaded.load_state_dict(torch.load(file))
            for other in (loaded, copied, pickle.loads(pickled)):
                self.assertEqual(other.scale("dy"), scale)
                self.assertEqual(losses(other, 3), expected)
        with self.assertRaisesRegex(quaver.Error, "another recipe"):
            quaver.Linear(64, 48, recipe="fp8-block").load_state_dict(loaded.cpu().state_dict())
        plain = torch.nn.Linear(64, 48, device=self.device)
        loaded.to(self.device).load_state_dict(plain.state_dict())
        self.assertTrue(torch.equal(loaded.weight, plain.weight))

    def test_wrong_tensors_are_refused_with_a_remedy(self) -> None:
        layer = quaver.Linear(64, 32, device=self.device)
        with self.assertRaisesRegex(TypeError, "float64.*convert x"):
            layer(self.randn(8, 64).double())
        with self.assertRaisesRegex(TypeError, "float16.*autocast"):
            layer(self.randn(8, 64).half())
        with self.assertRaisesRegex(ValueError, "last dimension must be 64"):
            layer(self.randn(8, 65))
        with self.assertRaisesRegex(quaver.Error, "fp9"):
            quaver.Linear(8, 8, recipe="fp9", device=self.device)
        layer.weight = torch.nn.Parameter(self.randn(64, 32).t())
        with self.assertRaisesRegex(ValueError, "contiguous"):
            layer(self.randn(8, 64))

    def test_trains_a_small_network_as_torch_does(self) -> None:
        def loss_with(recipe: str) -> float:
            torch.manual_seed(3)
            layers = [torch.nn.Linear(32, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, 16)]
            layers = [layer.to(self.device) for layer in layers]
            if recipe:
                layers = [quaver.Linear.from_torch(layer, recipe=recipe) for layer in layers]
            model = torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1], torch.nn.GELU(), layers[2])
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            x = self.randn(512, 32)
            target = torch.sin(x @ self.randn(32, 16, seed=5) / 4)
            for _ in range(60):
                for part in range(2):  # micro-batches
                    rows = slice(256 * part, 256 * (part + 1))
                    (torch.nn.functional.mse_loss(model(x[rows]), target[rows]) / 2).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                quaver.end_step(model)
            with torch.no_grad():
                return float(torch.nn.functional.mse_loss(model(x), target))

        expected = loss_with("")
        self.assertLess(expected, 0.1)
        self.assertAlmostEqual(loss_with("fp32"), expected, delta=0.02 * expected)
        for recipe in ("fp8-delayed", "fp8-current", "fp8-block"):
            self.assertLess(loss_with(recipe), 1.3 * expected + 0.01, recipe)


@unittest.skipIf(WHY_NO_GPU, f"no GPU: {WHY_NO_GPU}")
class Cuda(Cpu):
    device = "cuda"

    def test_bfloat16_is_read_and_written_in_place(self) -> None:
        for recipe in RECIPES:
            with self.subTest(recipe):
                layer = quaver.Linear(256, 160, recipe=recipe, device="cuda")
                exact = quaver.Linear.from_torch(layer, recipe=recipe)  # type: ignore[arg-type]
                x = self.randn(96, 256).bfloat16()
                wide = x.float().requires_grad_()
                x.requires_grad_()
                y, expected = layer(x), exact(wide)
                self.assertEqual((y.dtype, y.device), (torch.bfloat16, x.device))
                dy = self.randn(96, 160, seed=9).bfloat16()
                y.backward(dy)
                dw, layer.weight.grad = layer.weight.grad, None
                expected.backward(dy.float())
                self.assertEqual((x.grad.dtype, dw.dtype), (torch.bfloat16, torch.float32))
                # The same codes; results are rounded to BF16.
                self.assertLess(relative_error(y, expected), 4e-3)
                self.assertLess(relative_error(x.grad, wide.grad), 4e-3)
                self.assertLess(relative_error(dw, layer.weight.grad), 1e-3)

    def test_nothing_is_copied_to_the_host_or_waited_for(self) -> None:
        layer = quaver.Linear(256, 256, device="cuda")
        x = self.randn(512, 256).bfloat16().requires_grad_()
        layer(x).sum().backward()  # measures GEMMs
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            torch.cuda._sleep(100_000_000)  # 0.05 s
            layer(x).sum().backward()
            self.assertFalse(torch.cuda.current_stream().query())  # the layer's kernels are still to run
            torch.cuda.synchronize()
        names = [event.key for event in profile.key_averages()]
        self.assertFalse([name for name in names if "DtoH" in name or "HtoD" in name], names)

    def test_runs_on_the_current_stream(self) -> None:
        layer = quaver.Linear(512, 512, recipe="fp8-current", device="cuda")
        x = self.randn(256, 512)
        expected = layer(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        for _ in range(3):
            with torch.cuda.stream(stream):
                late = torch.zeros_like(x)
                torch.cuda._sleep(200_000_000)  # 0.1 s
                late.copy_(x)
                y = layer(late)
                self.assertFalse(stream.query())
            again = layer(x)  # of the other stream: behind it, since both use the layer's memory
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(y, expected))
            self.assertTrue(torch.equal(again, expected))

    def test_follows_autocast(self) -> None:
        layer = quaver.Linear(64, 64, device="cuda")
        x = self.randn(8, 64).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
        self.assertEqual(y.dtype, torch.bfloat16)
        y.float().sum().backward()
        self.assertEqual((x.grad.dtype, layer.weight.grad.dtype), (torch.float32, torch.float32))

    def test_bfloat16_weights(self) -> None:
        layer = quaver.Linear(128, 64, device="cuda", dtype=torch.bfloat16)
        x = self.randn(32, 128).bfloat16()
        y = layer(x)
        y.sum().backward()
        expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
        self.assertLess(relative_error(y, expected), 0.06)
        self.assertEqual((layer.weight.grad.dtype, layer.bias.grad.dtype), (torch.bfloat16, torch.bfloat16))

    def test_tensors_of_another_device_and_graphs_are_refused(self) -> None:
        layer = quaver.Linear(64, 64, device="cuda")
        with self.assertRaisesRegex(ValueError, "x is on cpu"):
            layer(torch.zeros(8, 64))
        layer.cpu()
        self.assertEqual(layer(torch.zeros(8, 64)).device.type, "cpu")
        layer.cuda()
        x = self.randn(8, 64)
        with torch.no_grad():
            expected = layer(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                doubled = 2 * x
                with self.assertRaisesRegex(quaver.Error, "graph is being captured"):
                    layer(x)
            graph.replay()  # the rest of the capture, which the error has not ended
            self.assertTrue(torch.equal(doubled, 2 * x))
            self.assertTrue(torch.equal(layer(x), expected))

    def test_layers_share_what_does_not_depend_on_them(self) -> None:
        first = quaver.Linear(256, 256, device="cuda")
        x = self.randn(64, 256)
        first(x).sum().backward()
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        layers = [quaver.Linear(256, 256, device="cuda") for _ in range(64)]
        for layer in layers:
            layer(x).sum().backward()
        used = before - torch.cuda.mem_get_info()[0]
        # FP32 weight and gradient, and two copies of codes.
        self.assertLess(used, 64 * 256 * 256 * 10 + (64 << 20))

    def test_a_layer_on_numpy_arrays_asks_for_cpu_tensors(self) -> None:
        with self.assertRaisesRegex(TypeError, r"call \.cpu\(\)"):
            quaver.LinearLayer(8, 8).forward(self.randn(8, 8))


if __name__ == "__main__":
    if WHY_NO_GPU:
        print(f"skipped: tests of quaver.Linear on a GPU, because {WHY_NO_GPU}")
    unittest.main(argv=sys.argv)
