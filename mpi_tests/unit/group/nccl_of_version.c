/* A library that tells a version of NCCL and has nothing else of it. */
int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return 0;
}
