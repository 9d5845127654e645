# Helpers shared by the build files: how a module, a test and a benchmark are compiled.

add_library(quaver_flags INTERFACE)
target_include_directories(quaver_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(quaver_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:${CMAKE_UNITY_BUILD}>>>:-Wshadow>  # a file's names are not another's
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)  # false alarms on std::string + in g++ 12
if(QUAVER_SANITIZE)
  target_compile_options(quaver_flags INTERFACE -fsanitize=${QUAVER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(quaver_flags INTERFACE -fsanitize=${QUAVER_SANITIZE})
  target_compile_definitions(quaver_flags INTERFACE QUAVER_SANITIZED)
endif()

# quaver_module(name [DEPENDS modules...] [LIBRARIES targets...] [OPTIONS flags...]): src/<name>/**/*.cpp as one static library.
# main.cpp and generated files are left out. A folder without sources gives an interface library.
function(quaver_module name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES;OPTIONS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "/engine/cuda/|/comm/mpi/")  # modules of their own: cmake/cuda.cmake, cmake/mpi.cmake
  if(sources)
    add_library(quaver_${name} STATIC ${sources})
    target_compile_options(quaver_${name} PRIVATE ${arg_OPTIONS})
    set(scope PUBLIC)
  else()
    add_library(quaver_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND quaver_)
  target_link_libraries(quaver_${name} ${scope} quaver_flags ${arg_DEPENDS} ${arg_LIBRARIES})
endfunction()

# quaver_hash(variable folders...): a hash of the headers in these folders, taken anew when one of them changes.
function(quaver_hash variable)
  set(hashes "")
  foreach(folder ${ARGN})
    file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
    foreach(header ${headers})
      file(SHA256 ${header} hash)
      string(APPEND hashes ${hash})
      set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    endforeach()
  endforeach()
  string(SHA256 hash "${hashes}")
  string(SUBSTRING ${hash} 0 16 hash)
  set(${variable} ${hash} PARENT_SCOPE)
endfunction()
