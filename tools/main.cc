#include "tools/cli.h"

int main(int argc, char** argv) { return foreshard::RunCommandLine(argc, argv); }
