# DSTUNE_PYTHON_NVIDIA: the folders of what NVIDIA packs for Python, of the python3 in PATH. PyTorch
# brings cuDNN and NCCL so, headers and libraries side by side: cudnn/include, cudnn/lib. For where the
# toolkit has none.
if(NOT DEFINED DSTUNE_PYTHON_NVIDIA)
  set(folders "")
  find_program(DSTUNE_PYTHON python3)
  mark_as_advanced(DSTUNE_PYTHON)
  if(DSTUNE_PYTHON)
    execute_process(
      COMMAND "${DSTUNE_PYTHON}" -c
              "import importlib.util as u; s = u.find_spec('nvidia'); print(*(s.submodule_search_locations if s else []), sep=chr(59))"
      OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(DSTUNE_PYTHON_NVIDIA "${folders}" CACHE STRING "NVIDIA's packages of Python: folders with cudnn, nccl")
  mark_as_advanced(DSTUNE_PYTHON_NVIDIA)
endif()
