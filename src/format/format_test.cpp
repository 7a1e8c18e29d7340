#include "format/format.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "format/crc32.hpp"
#include "format/decimal.hpp"
#include "format/pickle.hpp"
#include "format/safetensors.hpp"
#include "format/unescape.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

class FormatTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tenscope_format_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Value round_trip(const std::string& name, const Value& value) {
    save(folder_ / name, value);
    return load(folder_ / name);
  }

  std::filesystem::path folder_;
};

Tensor counting(DType dtype, std::vector<std::int64_t> shape) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  std::byte* bytes = nullptr;
  const std::size_t size = static_cast<std::size_t>(element_count(tensor.shape)) * item_size(dtype);
  tensor.storage = allocate_storage(size, &bytes);
  tensor.data = bytes;
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(dtype == DType::Bool ? i & 1 : i * 7 + 1);
  tensor.origin = TensorOrigin::Torch;
  return tensor;
}

std::string elements(const Tensor& tensor) {
  std::string bytes(size_bytes(tensor.view()), '\0');
  copy_elements(tensor.view(), reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

void expect_equal(const Value& got, const Value& want) {
  ASSERT_EQ(got.kind(), ValueKind::Tensor);
  EXPECT_EQ(got.get<Tensor>().dtype, want.get<Tensor>().dtype);
  EXPECT_EQ(got.get<Tensor>().shape, want.get<Tensor>().shape);
  EXPECT_EQ(elements(got.get<Tensor>()), elements(want.get<Tensor>()));
}

TEST_F(FormatTest, EveryDTypeGoesThroughEveryFormatThatHasIt) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    SCOPED_TRACE(to_string(dtype));
    for (const auto& shape : {std::vector<std::int64_t>{}, {0}, {3}, {2, 3, 4}, {2, 0, 4}}) {
      const Value tensor = counting(dtype, shape);
      const Dict dict{{{"a/b", tensor}}};
      expect_equal(round_trip("x.pt", tensor), tensor);
      const bool is_numpy = item_size(dtype) > 1 ? dtype != DType::BF16 : kind_of(dtype) != DTypeKind::Float;
      if (is_numpy) {
        expect_equal(round_trip("x.npy", tensor), tensor);
        expect_equal(*round_trip("x.npz", dict).get<Dict>().find("a/b"), tensor);
      } else {
        EXPECT_THROW(round_trip("x.npy", tensor), Error);
      }
      expect_equal(round_trip("x.pkl", tensor), tensor);
      if (dtype != DType::C128) expect_equal(*round_trip("x.safetensors", dict).get<Dict>().find("a/b"), tensor);
    }
  }
}

TEST_F(FormatTest, StridedViewsAreWrittenByTheirElements) {
  Tensor whole = counting(DType::I16, {6, 8});
  Tensor transposed = whole, skipping = whole, reversed = whole, expanded = whole;
  transposed.shape = {8, 6}, transposed.strides = {1, 8};
  skipping.shape = {3, 2}, skipping.strides = {16, 3}, skipping.data += 2;
  reversed.shape = {48}, reversed.strides = {-1}, reversed.data += 94;
  expanded.shape = {5, 8}, expanded.strides = {0, 1};
  for (const char* name : {"x.npy", "x.pt", "x.pkl"}) {
    for (const Tensor& view : {transposed, skipping, reversed, expanded}) expect_equal(round_trip(name, view), view);
  }
}

TEST_F(FormatTest, TensorsThatShareMemoryShareAStorage) {
  Tensor whole = counting(DType::F32, {8, 8});
  Tensor row = whole, bits = whole;
  row.shape = {8}, row.data += 32;
  bits.dtype = DType::I32;
  for (const char* name : {"x.pt", "x.pkl"}) {
    const Value loaded = round_trip(name, List{{whole, row, bits, counting(DType::F32, {2})}});
    const auto& items = loaded.get<List>().items;
    EXPECT_EQ(items[0].get<Tensor>().storage, items[1].get<Tensor>().storage);
    EXPECT_EQ(items[0].get<Tensor>().storage, items[2].get<Tensor>().storage);
    EXPECT_NE(items[0].get<Tensor>().storage, items[3].get<Tensor>().storage);
    expect_equal(items[1], row);
    expect_equal(items[2], bits);
  }
}

TEST_F(FormatTest, PlainValuesAndNests) {
  Dict ordered{{{1, "one"}, {Tuple{{2, 2.5}}, Value()}}};
  ordered.is_ordered_dict = true;
  ordered.attributes = std::make_shared<const Value>(Dict{{{"_metadata", 1}}});
  const Value value = Dict{{{"none", {}},
                            {"bool", true},
                            {"int", std::int64_t{-1} << 62},
                            {"big", BigInt{"-123456789012345678901234567890"}},
                            {"float", -0.5},
                            {"complex", std::complex<double>(1, -2)},
                            {"text", "\xc3\xa4\xf0\x9f\x99\x82"},
                            {"bytes", Bytes{std::string("\0\xff\x80", 3), false}},
                            {"bytearray", Bytes{"xyz", true}},
                            {"set", Set{{1, 2}, false}},
                            {"frozen", Set{{}, true}},
                            {"ordered", ordered},
                            {"dtype", Object{"torch.float32", nullptr, nullptr}},
                            {"list", List{{Tuple{}, Tuple{{1}}, Tuple{{1, 2, 3, 4}}}}}}};
  for (const char* name : {"x.pt", "x.pkl"}) {
    const Value loaded = round_trip(name, value);
    const auto& dict = loaded.get<Dict>();
    EXPECT_TRUE(dict.find("none")->is_none());
    EXPECT_TRUE(dict.find("bool")->get<bool>());
    EXPECT_EQ(dict.find("int")->get<std::int64_t>(), std::int64_t{-1} << 62);
    EXPECT_EQ(dict.find("big")->get<BigInt>().digits, "-123456789012345678901234567890");
    EXPECT_EQ(dict.find("float")->get<double>(), -0.5);
    EXPECT_EQ(dict.find("complex")->get<std::complex<double>>(), std::complex<double>(1, -2));
    EXPECT_EQ(dict.find("text")->get<std::string>(), "\xc3\xa4\xf0\x9f\x99\x82");
    EXPECT_EQ(dict.find("bytes")->get<Bytes>().data, std::string("\0\xff\x80", 3));
    EXPECT_TRUE(dict.find("bytearray")->get<Bytes>().is_mutable);
    EXPECT_EQ(dict.find("set")->get<Set>().items.size(), 2u);
    EXPECT_TRUE(dict.find("frozen")->get<Set>().is_frozen);
    EXPECT_EQ(dict.find("dtype")->get<Object>().type, "torch.float32");
    EXPECT_EQ(dict.find("list")->get<List>().items[2].get<Tuple>().items[3].get<std::int64_t>(), 4);
    const auto& again = dict.find("ordered")->get<Dict>();
    EXPECT_TRUE(again.is_ordered_dict);
    EXPECT_EQ(again.entries[1].first.get<Tuple>().items[1].get<double>(), 2.5);
    ASSERT_TRUE(again.attributes);
    EXPECT_EQ(again.attributes->get<Dict>().find("_metadata")->get<std::int64_t>(), 1);
  }
}

TEST_F(FormatTest, CompressedArchivesReadBack) {
  const Value tensor = counting(DType::F64, {100, 100});
  save(folder_ / "x.npz", Dict{{{"a", tensor}}}, {.compress = true});
  expect_equal(*load(folder_ / "x.npz").get<Dict>().find("a"), tensor);
}

TEST_F(FormatTest, LargeFilesAreMappedAndOutliveTheirReplacement) {
  const Value tensor = counting(DType::F32, {1 << 18});
  for (const char* name : {"x.npy", "x.pt"}) {
    const Value loaded = round_trip(name, tensor);
    save(folder_ / name, counting(DType::U8, {1}));
    expect_equal(loaded, tensor);
  }
}

TEST_F(FormatTest, AFailedSaveLeavesTheOldFileAndNothingElse) {
  save(folder_ / "x.npy", counting(DType::F32, {2}));
  EXPECT_THROW(save(folder_ / "x.npy", counting(DType::BF16, {2})), Error);
  expect_equal(load(folder_ / "x.npy"), counting(DType::F32, {2}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FormatTest, ErrorsNameWhatIsWrong) {
  const auto message_of = [&](const std::string& name, std::string_view bytes) -> std::string {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    try {
      load(folder_ / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message_of("x.npy", "\x93NUMPY\x01").find("at byte 8: "), std::string::npos);
  EXPECT_NE(message_of("x.npy", "\x93NUMPY\x01").find("x.npy"), std::string::npos);
  EXPECT_NE(message_of("x.pkl", "cos\nsystem\n(S'x'\ntR.").find("os.system"), std::string::npos);
  const std::string quoted = message_of("x.pkl", std::string_view("c\0\xff\nb\n.", 7));
  EXPECT_NE(quoted.find("\\x00\\xff.b"), std::string::npos) << quoted;
  EXPECT_NE(message_of("x.pt", "hello").find("neither a zip archive nor"), std::string::npos);
  EXPECT_NE(message_of("x.foo", "").find(".safetensors"), std::string::npos);
  EXPECT_NE(message_of("x.safetensors", std::string(8, '\xff')).find("at byte 0"), std::string::npos);
  EXPECT_THROW(load(folder_ / "missing.npy"), Error);
}

Value unpickle(std::string_view bytes) { return read_pickle(memory_source(bytes, ".pkl"), {}); }

TEST(Pickle, RecursionAndExpansionAreRefused) {
  EXPECT_THROW(unpickle(std::string_view("\x80\x02]q\x00h\x00"
                                         "a.",
                                         8)),
               Error);  // a list that contains itself
  std::string laughs = "\x80\x02(]q";
  laughs += '\0';
  for (int i = 1; i < 100; ++i) {  // each list holds the one before ten times
    laughs += "](";
    for (int k = 0; k < 10; ++k) laughs += std::string("h") + static_cast<char>(i - 1);
    laughs += std::string("eq") + static_cast<char>(i);
  }
  laughs += "t.";
  EXPECT_THROW(unpickle(laughs), Error);
  EXPECT_THROW(unpickle("\x80\x02" + std::string(5000, '(') + std::string(5000, 't') + "."), Error);
}

TEST(Decimal, RoundTrips) {
  for (const char* digits : {"0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "9223372036854775808",
                             "-9223372036854775809", "340282366920938463463374607431768211456"}) {
    const std::string bytes = bytes_of_decimal(digits);
    EXPECT_EQ(decimal_of_bytes(bytes), digits);
  }
  EXPECT_EQ(bytes_of_decimal("-128"), "\x80");
  EXPECT_EQ(bytes_of_decimal("255"), std::string("\xff\0", 2));
}

TEST(Crc32, AsByteByByte) {
  std::string text(5000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32_of(0, std::as_bytes(std::span("123456789", 9))), 0xcbf43926u);
  for (const std::size_t size : {0u, 1u, 1023u, 1024u, 1025u, 1279u, 1280u, 4999u}) {
    std::uint32_t expected = ~std::uint32_t{0x12345678};
    for (const std::byte byte : bytes.subspan(1, size)) {
      expected ^= static_cast<std::uint32_t>(byte);
      for (int bit = 0; bit < 8; ++bit) expected = expected >> 1 ^ (expected & 1 ? 0xedb88320u : 0u);
    }
    EXPECT_EQ(crc32_of(0x12345678, bytes.subspan(1, size)), ~expected) << size;
  }
}

TEST(Unescape, AsPythonDoes) {
  EXPECT_EQ(unescape_python_string(R"('a\'b\x00\n')"), std::string("a'b\0\n", 5));
  EXPECT_FALSE(unescape_python_string("'a"));
  EXPECT_FALSE(unescape_python_string(R"('\x0')"));
  EXPECT_EQ(unescape_raw_unicode("\xe4\\u20ac\\U0001f642"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82");
  EXPECT_FALSE(unescape_raw_unicode("\\u20"));
  EXPECT_EQ(latin1_of_utf8("a\xc3\xbf"), "a\xff");
  EXPECT_FALSE(latin1_of_utf8("\xe2\x82\xac"));
}

TEST(Safetensors, HolesOverlapsAndRepetitionsAreRefused) {
  const auto read = [](std::string header, std::size_t data_bytes) {
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    return read_safetensors(memory_source(file + header + std::string(data_bytes, '\1'), ".safetensors"), {});
  };
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_EQ(read("{" + a + "}", 2).get<Dict>().entries.size(), 1u);
  EXPECT_THROW(read("{" + a + "}", 3), Error);
  EXPECT_THROW(read("{" + a + "," + a + "}", 2), Error);
  EXPECT_THROW(read("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), Error);
  EXPECT_THROW(read("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5), Error);
  EXPECT_THROW(read(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0), Error);
  EXPECT_THROW(read("{" + a + "} x", 2), Error);
}

}  // namespace
}  // namespace tenscope
