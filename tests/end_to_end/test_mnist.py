import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_lenet_on_mnist_is_fifty_times_smaller_in_a_minute(tmp_path, data_directory):
    environment = {**os.environ, "ELLZERO_DATA": str(data_directory), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ellzero.cli", "sparsify", "lenet-300-100", "-o", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["parameters"] == 266_610
    assert record["compression_rate"] > 40
    assert record["test_error_percent"] < 2.3
    assert record["dense_test_error_percent"] < 2.0
