# Fails where an object of OBJECTS defines a weak or unique symbol: NM -C, types W, V, u.
foreach(object ${OBJECTS})
  execute_process(COMMAND "${NM}" -C --defined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" shared "${symbols}")
  # The sanitizers' and the personality routine's own references are the same everywhere, and so is clang's call of
  # std::terminate.
  list(FILTER shared EXCLUDE REGEX "DW.ref.|asan|ubsan|tsan|__clang_call_terminate")
  if(shared)
    message(SEND_ERROR "${object} defines what the linker may merge: ${shared}")
  endif()
endforeach()
