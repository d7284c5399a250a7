package ringside_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "ringside"

// source is the module as far as the rules look at it.
type source struct {
	fset    *token.FileSet
	goFiles []goFile
	texts   []textFile // every file that people read, Go or not
}

type goFile struct {
	path, dir string // with slashes, relative to the root; dir is "" there
	test      bool
	built     bool // by a plain go build or go test on some system
	lines     int
	syntax    *ast.File
}

type textFile struct {
	path string
	data []byte
}

// readTree parses all Go files below root and reads the other texts. Folders that hold no source are left out.
func readTree(root fs.FS) (source, error) {
	s := source{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (d.Name() == "testdata" || d.Name() == "bin" || (strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci")) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return nil // a picture or another thing that is not read
		}
		s.texts = append(s.texts, textFile{name, data})
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := parse(s.fset, name, data)
		if err != nil {
			return err
		}
		s.goFiles = append(s.goFiles, f)
		return nil
	})
	return s, err
}

func parse(fset *token.FileSet, name string, data []byte) (goFile, error) {
	syntax, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return goFile{}, err
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	built, err := isBuilt(syntax)
	if err != nil {
		return goFile{}, fmt.Errorf("%s: %w", name, err)
	}
	return goFile{
		path: name, dir: dir, test: strings.HasSuffix(name, "_test.go"), built: built,
		lines: bytes.Count(data, []byte("\n")), syntax: syntax,
	}, nil
}

// isBuilt reports whether the file's build constraint holds on any system that we build for, with or without the race detector.
func isBuilt(f *ast.File) (bool, error) {
	for _, group := range f.Comments {
		if group.Pos() > f.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				return false, err
			}
			return slices.ContainsFunc(systems(), func(tags []string) bool {
				return expr.Eval(func(tag string) bool { return slices.Contains(tags, tag) || strings.HasPrefix(tag, "go1.") })
			}), nil
		}
	}
	return true, nil
}

// systems are the sets of build tags that we build with.
func systems() (sets [][]string) {
	for _, system := range []string{"linux", "darwin"} {
		for _, arch := range []string{"amd64", "arm64"} {
			for _, more := range [][]string{nil, {"race", "cgo"}} {
				sets = append(sets, append([]string{"unix", system, arch}, more...))
			}
		}
	}
	return sets
}

// imports are the import paths of a file.
func (f goFile) imports() (paths []string) {
	for _, spec := range f.syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil { // the parser has accepted it
			paths = append(paths, p)
		}
	}
	return paths
}

// own is the path of one of our packages, relative to the root, when the import is one.
func own(imported string) (dir string, ok bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// covers reports whether a pattern ("x", or "x/..." for x and all below it) covers a path.
func covers(pattern, p string) bool {
	below, tree := strings.CutSuffix(pattern, "/...")
	return p == below || (tree && strings.HasPrefix(p, below+"/"))
}

func anyCovers(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return covers(pattern, p) })
}
