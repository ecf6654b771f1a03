#include "server/model_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/check.h"

namespace pagoda {
namespace {

GetEnvironment environment_of(const std::map<std::string, std::string>& values) {
  return [values](const std::string& name) -> const char* {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

TEST(ModelPath, TheDemoIsLookedUpUnderPagodaHome) {
  EXPECT_EQ(model_path("/x/y.gguf", environment_of({})), "/x/y.gguf");
  EXPECT_EQ(model_path("demo", environment_of({{"PAGODA_HOME", "/p"}})),
            "/p/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(model_path("demo", environment_of({{"HOME", "/h"}})),
            "/h/.cache/pagoda/models/SmolLM2-135M-Instruct.Q4_1.gguf");
}

TEST(ModelPath, WhatIsNoFileIsAnsweredWithWhatToDo) {
  const std::string folder = testing::TempDir() + "model_path_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const GetEnvironment environment = environment_of({{"PAGODA_HOME", folder}});
  const auto error_of = [&](const std::string& model) {
    return base::message_of(find_model(model, environment).status());
  };
  EXPECT_NE(error_of(folder + "/x.gguf").find("x.gguf; give the path of a GGUF file"),
            std::string::npos);
  EXPECT_NE(error_of("demo").find("run scripts/setup.sh"), std::string::npos);
  EXPECT_NE(error_of(folder).find("there is none in it"), std::string::npos);
  std::ofstream(folder + "/b.gguf") << "x";
  std::ofstream(folder + "/a.gguf") << "x";
  EXPECT_NE(error_of(folder).find("such as " + folder + "/a.gguf"), std::string::npos);
  EXPECT_EQ(*find_model(folder + "/a.gguf", environment), folder + "/a.gguf");
}

TEST(ModelPath, AChatTemplateIsAFileOrItsText) {
  base::MemoryFileSystem fs;
  fs.put("t.jinja", {'h', 'i'});
  EXPECT_EQ(*read_chat_template(fs, "t.jinja"), "hi");
  EXPECT_EQ(*read_chat_template(fs, "{{ messages }}"), "{{ messages }}");
  EXPECT_EQ(*read_chat_template(fs, "a\nb"), "a\nb");
  EXPECT_NE(base::message_of(read_chat_template(fs, "none.jinja").status()).find("--chat-template"),
            std::string::npos);
}

}  // namespace
}  // namespace pagoda
