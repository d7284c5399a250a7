package localcluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LookAtSources looks at every source file of the module below root, for tests that build programs. A result of go test is kept until a file changes
// that the test has looked at, and what go build reads is not seen: without this an old result would stand for a new program.
func LookAtSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		_, err = os.Stat(path)
		return err
	})
}
