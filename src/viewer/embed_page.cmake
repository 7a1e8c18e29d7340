# Writes the source file `output`, which implements assets.hpp with the files of the folder `page`.
set(text "// Made from web/dist by embed_page.cmake.\n#include \"viewer/assets.hpp\"\n\nnamespace tenscope::viewer {\n")
foreach(pair page_html=index.html page_script=viewer.js page_style=viewer.css)
  string(REPLACE "=" ";" words ${pair})
  list(GET words 0 function)
  list(GET words 1 file)
  file(READ ${page}/${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND text "static const unsigned char ${function}_bytes[] = {${bytes}0};  // a zero behind them\n"
                     "std::string_view ${function}() {\n"
                     "  return {reinterpret_cast<const char*>(${function}_bytes), sizeof ${function}_bytes - 1};\n}\n")
endforeach()
file(WRITE ${output} "${text}}  // namespace tenscope::viewer\n")
