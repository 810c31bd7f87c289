int returns_nothing_of_its_own(int unused) {
  return 0;
}
