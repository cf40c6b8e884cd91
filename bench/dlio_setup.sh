#!/bin/bash
# DLIO for bench/dlio.py, in a private environment: bench/dlio_setup.sh [FOLDER]
# Root on Debian or Ubuntu (Open MPI comes from apt when it is not there). PyTorch is that of the project's .venv.
set -eu
cd "$(dirname "$0")/.."
D=${1:-bench/work/dlio}
command -v mpirun >/dev/null || apt-get install -y --no-install-recommends openmpi-bin libopenmpi-dev >/dev/null
mkdir -p "$D"
[ -x "$D/venv/bin/pip" ] || python3 -m venv "$D/venv"
P="$D/venv/bin/pip"
S=$("$D/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
# Not --only-binary: antlr4-python3-runtime has no wheel, pip would fall back to hydra-core 0.11.
"$P" install -q Pillow PyYAML h5py numpy pandas psutil mpi4py 'omegaconf>=2.2' 'hydra-core>=1.3.2'
# Not its dependencies: one of them cannot be installed.
"$P" install -q --no-deps pydftracer==1.0.2 dlio-benchmark==2.0.0
.venv/bin/python -c 'import site; print(site.getsitepackages()[0])' > "$S/zz_torch.pth"
# It imports tensorflow whatever the framework is; an empty module is enough for PyTorch.
[ -e "$S/tensorflow" ] || echo '# stands in for TensorFlow, which is not used' > "$S/tensorflow.py"
# The reader formats its whole index map for every sample, for a message that nobody sees. The patched copy does not.
R="$S/dlio_benchmark/reader/reader_handler.py"
[ -e "$R.stock" ] || cp "$R" "$R.stock"
sed 's|logging.debug(f"{self.global_index_map}")|pass|' "$R.stock" > "$R.patched"
! cmp -s "$R.stock" "$R.patched" || { echo "dlio_setup: the line to patch is not there" >&2; exit 1; }
cp "$R.patched" "$R"
