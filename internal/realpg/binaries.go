package realpg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// places are where packages put the server's programs when they are not in PATH.
func places() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",            // Debian, Ubuntu
		"/usr/pgsql-*/bin",                     // the project's packages for Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",   // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",      // Homebrew on Intel
		"/usr/libexec/postgresql*",             // Alpine
		"/Library/PostgreSQL/*/bin",            // installer for macOS
		"/Applications/Postgres.app/*/*/*/bin", // Postgres.app
	}
}

// binaries finds the directory that holds initdb and postgres: PATH first, else the newest version installed.
func binaries() (dir string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if dir := filepath.Dir(initdb); complete(dir) {
			return dir, nil
		}
	}
	var found []string
	for _, pattern := range places() {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, slices.DeleteFunc(matches, func(d string) bool { return !complete(d) })...)
	}
	if len(found) == 0 {
		return "", errors.New("the PostgreSQL server (initdb, postgres) is not installed: run scripts/setup")
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
}

func complete(dir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if st, err := os.Stat(filepath.Join(dir, program)); err != nil || st.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version is the last number in a path, which is the major version in all the places above; 0 without one.
func version(dir string) int {
	numbers := regexp.MustCompile(`\d+`).FindAllString(dir, -1)
	if len(numbers) == 0 {
		return 0
	}
	n, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		return 0
	}
	return n
}
