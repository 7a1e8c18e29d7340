#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/align.hpp"
#include "compare/module_tree.hpp"
#include "compare/python_source.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// A source file that a run may keep.
struct KeptFile {
  std::string file;         // empty: nothing says which
  std::string fingerprint;  // empty: it is not kept
  std::string left_out;     // why
};

// A function that runs as a module's forward, or around it.
struct CodeOfFunction {
  std::string site;  // where it begins; empty: not recorded
  KeptFile file;
};

// What a run knows of the code of a module.
struct CodeOfModule {
  std::string cls;         // "Block"
  std::string class_path;  // "model:Block"; empty: not recorded
  KeptFile class_file;
  CodeOfFunction forward;
  std::vector<CodeOfFunction> wrappers;  // around the forward, the outermost first
  std::string without_source;            // what runs there and has none, by its name; empty: nothing
  bool has_sources = false;              // the run keeps some
};
// As of a call; forwards may be replaced.
CodeOfModule code_of(const ModuleTree& tree, const ModuleNode& node, std::int64_t call, const Interner& interner);

// Compares the sources that two runs keep. The text of a run (0, 1) is asked for once by its fingerprint; what that
// throws is said. Not thread-safe.
class CodeComparison {
 public:
  using Text = std::function<std::string(int run, const std::string& fingerprint)>;
  explicit CodeComparison(Text text) : text_(std::move(text)) {}

  DiffCode compare(const CodeOfModule& a, const CodeOfModule& b);

 private:
  struct Part;
  struct Found;
  const PythonSource* source(int run, const KeptFile& file, std::string_view what, std::string& trouble);
  Found find(int run, const CodeOfModule& code);
  Part find_function(int run, const CodeOfFunction& function, std::string_view what, std::string& trouble);

  Text text_;
  std::map<std::string, std::unique_ptr<PythonSource>> sources_;  // by fingerprint
};

// The plain attributes of two modules that differ: those that both runs know, from the first call on or from a later
// one, before which one of the runs had changed them.
std::vector<DiffAttribute> compare_attributes(const ModuleNode& a, const ModuleNode& b, const Interner& interner);
// Of all modules that both runs have, in the order of their calls. `module_of` tells of a module of a tree (0, 1) what
// the run itself has, where that is something else; it may be empty.
using ModuleLookup = std::function<std::optional<ModuleOfRun>(int run, const ModuleNode& node)>;
std::vector<DiffAttribute> compare_attributes(const Alignment& alignment, const Interner& interner,
                                              const ModuleLookup& module_of = {});
// Whether a module's parameters have another dtype in the second run, as if it were an attribute.
std::vector<DiffAttribute> compare_dtypes(const ModuleNode& a, const ModuleNode& b, const LanePair& lane,
                                          const Interner& interner);

}  // namespace tenscope::compare
