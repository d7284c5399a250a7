// Ringside is the program: the sidecar itself (serve), a whole cluster to look at (demo), and the commands by which an operator
// asks a running sidecar.
//
// Flags, files and the environment are read here and nowhere else. A subcommand is one field of the struct cli in main.go and one file
// of its own, with a Run method that gets what it needs as arguments; so a test runs the program by calling run.
//
// Exit codes: 0 done, 1 failed, 2 called wrongly. They are decided in main.go alone.
package main
