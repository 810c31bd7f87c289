# Copyright the dstune-mpi authors. SPDX-License-Identifier: Apache-2.0
"""Spack's recipe of dstune-mpi, for Spack 1.0 or newer. docs/installing.md, "Spack", says how a site takes it."""

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class DstuneMpi(CMakePackage, CudaPackage):
    """An MPI-native tuner that finds the fastest DeepSpeed (ZeRO) training configuration."""

    # The project has no address on the network, so there is no homepage and no git attribute here. Spack
    # takes the source archive from the folder that it is called in, or from a mirror of the site.
    url = f"file://{os.getcwd()}/dstune-mpi-0.1.0.tar.gz"
    manual_download = True

    license("Apache-2.0", checked_by="dstune-mpi")

    # A site writes sha256="..." of its archive here; without it Spack asks for --no-checksum.
    version("0.1.0")
    # A site with a checkout may add: version("main", branch="main", git="file:///path/to/the/checkout")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    generator("ninja")

    depends_on("mpi@3:")
    depends_on("boost@1.74:+program_options+math")
    depends_on("eigen@3.4:")
    depends_on("fmt@8:")
    depends_on("nlohmann-json@3.10:")
    depends_on("onednn@2.6: cpu_runtime=omp")
    depends_on("spdlog")
    depends_on("yaml-cpp")

    with when("+cuda"):
        depends_on("cuda@12.8:")
        depends_on("cudnn@9.8:", type="build")
        depends_on("nccl@2.19.1:")

    # C++20 with what its library has since then.
    conflicts("%gcc@:11", msg="g++ 12 or newer is needed")
    conflicts("%clang@:15", msg="clang 16 or newer is needed")
    for _arch in CudaPackage.cuda_arch_values:
        if int(_arch.rstrip("af")) < 80:
            conflicts(f"cuda_arch={_arch}", when="+cuda", msg="GPUs of compute capability 8.0 are needed")

    def cmake_args(self):
        args = [
            self.define("BUILD_TESTING", False),
            self.define_from_variant("DSTUNE_CUDA", "cuda"),
            self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc),
        ]
        # Without a choice the project's own list of GPUs is better than none.
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def test_version(self):
        """the program says its version, and finds the MPI that it was built with"""
        program = which(self.prefix.bin.join("dstune-mpi"))
        said = program("--version", output=str.split, error=str.split)
        assert f"dstune-mpi {self.spec.version}" in said
        assert "MPI: " in said

    def test_plan(self):
        """an installed example is planned, without MPI"""
        program = which(self.prefix.bin.join("dstune-mpi"))
        program("plan", self.prefix.share.dstune.examples.spaces.join("quickstart.json"))
