int test_plugin_absent_function(void);
int test_plugin_absent_function(void) {
  return 0;
}
