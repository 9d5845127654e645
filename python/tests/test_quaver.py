"""The Python package: results equal to references by hand, and errors with remedies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any

import numpy as np

import quaver

RANDOM = np.random.default_rng(1)


def matrix(rows: int, cols: int) -> np.ndarray:
    return RANDOM.standard_normal((rows, cols)).astype(np.float32)


class Formats(unittest.TestCase):
    def test_bf16_rounds_as_by_hand(self) -> None:
        x = matrix(40, 40)
        bits = x.view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        np.testing.assert_array_equal(quaver.cast(x, "bf16"), rounded.view(np.float32))

    def test_casts_to_the_nearest_of_all_values(self) -> None:
        grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
        x = 2 * matrix(30, 30)
        nearest = np.abs(np.abs(x)[..., None] - grid).min(axis=-1)
        found = quaver.cast(x, "e2m1")
        np.testing.assert_array_equal(np.abs(np.abs(x) - np.abs(found)), nearest)
        self.assertTrue(np.isin(np.abs(found), grid).all())

    def test_names_all_formats_and_recipes(self) -> None:
        names = [f.name for f in quaver.formats()]
        self.assertEqual(names[:7], ["f32", "tf32", "bf16", "f16", "e4m3", "e5m2", "e2m1"])
        self.assertEqual(names[7:], ["e3m4", "e3m2", "e2m3", "int8"])
        self.assertEqual(quaver.formats()[4].max, 448)
        self.assertIn("fp8-delayed", quaver.recipes())
        self.assertEqual(quaver.recipe_spec("nvfp4", "w").block, "16x16")
        self.assertEqual(quaver.recipe_spec("fp8-static", "dy"), quaver.Spec("e5m2", policy="static"))


class Quantized(unittest.TestCase):
    def test_one_scale_per_tensor_maps_the_amax_to_the_largest_value(self) -> None:
        x = matrix(33, 65)
        made = quaver.quantize(x, full_statistics=True)
        scale = np.float32(448) / np.abs(x).max()
        self.assertEqual(made.tensor_scale, float(np.float32(1) / scale))
        expected = quaver.cast(x * (np.float32(1) / np.float32(made.tensor_scale)), "e4m3") * np.float32(made.tensor_scale)
        np.testing.assert_array_equal(made.dequantize(), expected)
        self.assertEqual(made.statistics.amax, float(np.abs(x).max()))
        self.assertEqual(sum(made.statistics.binades or ()), np.count_nonzero(x))
        self.assertIsNone(quaver.quantize(x).statistics.sqnr_db)

    def test_blocks_and_columns(self) -> None:
        x = matrix(64, 48)
        spec = quaver.recipe_spec("mxfp8", "x")
        made = quaver.quantize(x, spec, side="columnwise")
        self.assertEqual(made.shape, (48, 64))
        self.assertEqual(made.codes.shape, (48, 64))
        assert made.block_scales is not None
        self.assertEqual(made.block_scales.shape, (48, 2))
        np.testing.assert_allclose(made.dequantize(), x.T, rtol=0.07, atol=1e-2)

    def test_gemm_is_the_product_of_what_the_codes_stand_for(self) -> None:
        a, b = quaver.quantize(matrix(7, 32)), quaver.quantize(matrix(5, 32))
        np.testing.assert_allclose(quaver.gemm(a, b), quaver.dequantize(a) @ quaver.dequantize(b).T, rtol=1e-5, atol=1e-5)

    def test_wrong_arrays_are_refused_with_a_remedy(self) -> None:
        with self.assertRaisesRegex(TypeError, "float64, not float32"):
            quaver.quantize(np.zeros((2, 2)))
        with self.assertRaisesRegex(ValueError, "ascontiguousarray"):
            quaver.quantize(matrix(4, 4).T[:, :2])
        with self.assertRaisesRegex(ValueError, "dimensions"):
            quaver.quantize(matrix(4, 4).ravel())
        with self.assertRaisesRegex(TypeError, "list"):
            quaver.cast([1.0], "bf16")  # type: ignore[arg-type]
        with self.assertRaisesRegex(quaver.Error, "e9m9"):
            quaver.cast(matrix(2, 2), "e9m9")
        with self.assertRaises(quaver.Error):
            quaver.quantize(matrix(2, 2), quaver.Spec(block="3x3"))
        with self.assertRaises(ValueError):
            quaver.quantize(matrix(2, 2), quaver.Spec(block="wide"))
        with self.assertRaises(quaver.Error):
            quaver.gemm(quaver.quantize(matrix(2, 3)), quaver.quantize(matrix(2, 4)))

    def test_reads_dlpack_without_a_copy(self) -> None:
        class Tensor:
            def __init__(self, values: np.ndarray) -> None:
                self.values, self.exports, self.dtype = values, 0, values.dtype

            def __dlpack__(self, **options: object) -> object:
                self.exports += 1
                return self.values.__dlpack__()

            def __dlpack_device__(self) -> object:
                return self.values.__dlpack_device__()

        x = matrix(8, 8)
        tensor = Tensor(x)
        np.testing.assert_array_equal(quaver.cast(tensor, "e5m2"), quaver.cast(x, "e5m2"))
        self.assertEqual(tensor.exports, 1)

    def test_a_forked_process_computes_too(self) -> None:
        a = quaver.quantize(matrix(512, 512))
        product = quaver.gemm(a, a)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it would wait forever for threads that it does not have
            same = np.array_equal(quaver.gemm(a, a), product)
            os._exit(0 if same else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        np.testing.assert_array_equal(quaver.gemm(a, a), product)


class Layer(unittest.TestCase):
    def test_is_three_gemms_of_the_recipes_casts(self) -> None:
        x, w, dy = matrix(16, 32), matrix(24, 32), matrix(16, 24)
        layer = quaver.LinearLayer(32, 24, recipe="fp8-block")
        layer.set_weight(w)

        def cast(values: np.ndarray, role: str, side: str) -> quaver.QuantizedMatrix:
            return quaver.quantize(values, quaver.recipe_spec("fp8-block", role, side), side=side)

        y = quaver.gemm(cast(x, "x", "rowwise"), cast(w, "w", "rowwise"))
        dx = quaver.gemm(cast(dy, "dy", "rowwise"), cast(w, "w", "columnwise"))
        dw = quaver.gemm(cast(dy, "dy", "columnwise"), cast(x, "x", "columnwise"))
        np.testing.assert_array_equal(layer.forward(x), y)
        np.testing.assert_array_equal(layer.backward(dy), dx)
        np.testing.assert_array_equal(layer.weight_gradient(), dw)
        layer.end_step()
        self.assertEqual(layer.statistics("dy").amax, float(np.abs(dy).max()))
        self.assertFalse(layer.weight_gradient().any())

    def test_wrong_use_is_an_error(self) -> None:
        layer = quaver.LinearLayer(8, 4)
        with self.assertRaisesRegex(quaver.Error, "backward without a forward"):
            layer.backward(matrix(2, 4))
        with self.assertRaisesRegex(ValueError, "not 2 x 8"):
            layer.forward(matrix(2, 7))
        with self.assertRaises(quaver.Error):
            quaver.LinearLayer(8, 4, recipe="fp9")
        with self.assertRaises(quaver.Error):
            quaver.LinearLayer(8, 4, settings=["train.steps=1"])


    def test_threads_may_compute_while_the_interpreter_ends(self) -> None:
        program = """
import threading, time
import numpy as np, quaver

def compute():
    layer = quaver.LinearLayer(64, 64)
    while True:
        layer.forward(np.ones((32, 64), np.float32))

for _ in range(2):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.1)
"""
        self.assertEqual(subprocess.run([sys.executable, "-c", program]).returncode, 0)


class Training(unittest.TestCase):
    TOML = """
[data]
kind = "synthetic"
[model]
layers = 1
width = 32
heads = 2
context = 16
[train]
batch = 2
eval_batches = 1
device = "cpu"
"""

    def test_trains_stops_resumes_and_reads_back(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            losses: list[float] = []

            def on_step(step: quaver.Step) -> bool:
                losses.append(step.loss)
                return step.step == 3

            run = os.path.join(folder, "run")
            trainer = quaver.Trainer(toml=self.TOML, settings={"train.steps": 5, "run.dir": run}, on_step=on_step)
            first = trainer.train()
            self.assertTrue(first.stopped)
            result = quaver.Trainer(on_step=on_step).resume(run)
            self.assertFalse(result.stopped)
            self.assertEqual(result.steps, 5)
            self.assertGreater(trainer.evaluate().loss, 0)
            (recorded,) = quaver.read_runs(folder)
            self.assertEqual(recorded.status, "finished")
            np.testing.assert_array_equal(recorded.metrics["loss"][0], np.arange(1, 6))
            np.testing.assert_array_equal(recorded.metrics["loss"][1], losses)

    def test_an_exception_in_the_callback_ends_the_run_and_comes_back(self) -> None:
        def fail(step: quaver.Step) -> None:
            raise KeyError(step.step)

        with tempfile.TemporaryDirectory() as folder:
            settings = {"train.steps": 50, "run.dir": os.path.join(folder, "run")}
            with self.assertRaises(KeyError):
                quaver.Trainer(toml=self.TOML, settings=settings, on_step=fail).train()
            self.assertEqual(quaver.read_runs(folder, metrics=False)[0].status, "interrupted")

    def test_a_callbacks_result_that_is_neither_true_nor_false_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            settings = {"train.steps": 5, "run.dir": os.path.join(folder, "run")}
            several: Any = np.zeros(3)
            with self.assertRaisesRegex(ValueError, "truth value"):
                quaver.Trainer(toml=self.TOML, settings=settings, on_step=lambda step: several).train()

    def test_ctrl_c_between_two_callbacks_ends_the_run_and_comes_back(self) -> None:
        interrupt = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))

        def on_step(step: quaver.Step) -> None:
            if step.step == 2:
                interrupt.start()

        handler = signal.getsignal(signal.SIGINT)
        with tempfile.TemporaryDirectory() as folder:
            settings = {"train.steps": 3000, "run.dir": os.path.join(folder, "run")}
            with self.assertRaises(KeyboardInterrupt):
                quaver.Trainer(toml=self.TOML, settings=settings, on_step=on_step).train()
            self.assertEqual(quaver.read_runs(folder, metrics=False)[0].status, "interrupted")
        self.assertEqual(signal.getsignal(signal.SIGINT), handler)

    def test_an_exception_of_on_message_ends_the_run(self) -> None:
        def fail(text: str) -> None:
            raise KeyError(text)

        with tempfile.TemporaryDirectory() as folder:
            trainer = quaver.Trainer(toml=self.TOML, settings={"train.steps": 1, "run.dir": os.path.join(folder, "run")})
            directory = trainer.train().directory
            with self.assertRaisesRegex(KeyError, "the run is complete"):
                quaver.Trainer(on_message=fail).resume(directory)

    def test_a_wrong_config_names_the_key(self) -> None:
        with self.assertRaisesRegex(quaver.Error, "train.stepz"):
            quaver.Trainer(settings={"train.stepz": 5}).train()
        with self.assertRaisesRegex(quaver.Error, "nowhere.toml"):
            quaver.Trainer("nowhere.toml").train()
        with self.assertRaises(quaver.Error):
            quaver.read_runs("/nonexistent")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
