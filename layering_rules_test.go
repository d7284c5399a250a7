package ringside_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	wishedLines = 500 // of a production file
	mostLines   = 600
)

// checkAll returns one line for each broken rule: where, what, and why it is a rule.
func checkAll(s source, table map[string]place, foreign []outside, long map[string]string) []string {
	return slices.Concat(
		checkFloors(s, table),
		checkOutside(s, foreign),
		checkPackageComments(s),
		checkLength(s, long),
		checkNames(s),
		checkInit(s),
		checkNothingSkipped(s),
		checkNothingLeftOpen(s),
	)
}

// lookup finds the place of a package: by its own path, else by the folder that covers it.
func lookup(table map[string]place, dir string) (place, bool) {
	if p, ok := table[dir]; ok {
		return p, true
	}
	for _, pattern := range slices.Sorted(maps.Keys(table)) {
		if strings.HasSuffix(pattern, "/...") && covers(pattern, dir) {
			return table[pattern], true
		}
	}
	return place{}, false
}

func checkFloors(s source, table map[string]place) (broken []string) {
	unknown := map[string]bool{}
	for _, f := range s.goFiles {
		p, ok := lookup(table, f.dir)
		if !ok {
			if !unknown[f.dir] {
				broken = append(broken, fmt.Sprintf("%s: the package is not in the table of layering_test.go: every package has a floor", f.dir))
			}
			unknown[f.dir] = true
			continue
		}
		if !f.built {
			continue
		}
		for _, imported := range f.imports() {
			other, ok := own(imported)
			if !ok || mayImport(table, f, p, other) {
				continue
			}
			broken = append(broken, fmt.Sprintf("%s: imports %s: %s", f.path, imported, p.why))
		}
	}
	return broken
}

func mayImport(table map[string]place, f goFile, p place, other string) bool {
	if slices.Contains(p.may, other) || f.test && (other == f.dir || slices.Contains(together()[f.dir], other)) {
		return true
	}
	q, ok := lookup(table, other)
	if !ok || !f.test {
		return false
	}
	return q.floor == beside || (p.floor != beside && q.floor < p.floor && f.dir != "loadtest") // whose tests look from outside too
}

func checkOutside(s source, rules []outside) (broken []string) {
	for _, f := range s.goFiles {
		if !f.built {
			continue
		}
		for _, imported := range f.imports() {
			for _, r := range rules {
				if anyCovers(r.imports, imported) && !anyCovers(r.by, f.dir) && !(f.test && r.tests) {
					broken = append(broken, fmt.Sprintf("%s: imports %s: %s", f.path, imported, r.why))
				}
			}
		}
	}
	return broken
}

func checkPackageComments(s source) (broken []string) {
	comments := map[string]int{}
	for _, f := range s.goFiles {
		if f.test || !f.built {
			continue
		}
		if f.syntax.Doc == nil {
			comments[f.dir] += 0
			continue
		}
		comments[f.dir]++
		if path.Base(f.path) != "doc.go" {
			broken = append(broken, fmt.Sprintf("%s: has a package comment: it belongs into doc.go, where one looks for it", f.path))
		}
		if text := f.syntax.Doc.Text(); f.syntax.Name.Name != "main" && !strings.HasPrefix(text, "Package "+f.syntax.Name.Name+" ") {
			broken = append(broken, fmt.Sprintf("%s: the package comment must begin with \"Package %s\"", f.path, f.syntax.Name.Name))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		if n := comments[dir]; n != 1 {
			broken = append(broken, fmt.Sprintf("%s: %d package comments: every package has exactly one", dir, n))
		}
	}
	return broken
}

func checkLength(s source, long map[string]string) (broken []string) {
	for _, f := range s.goFiles {
		if f.test || f.lines <= wishedLines {
			continue
		}
		if f.lines > mostLines || long[f.path] == "" {
			broken = append(broken, fmt.Sprintf("%s: %d lines: a file has at most %d, or %d with its reason in layering_test.go: split it by role",
				f.path, f.lines, wishedLines, mostLines))
		}
	}
	return broken
}

func checkNames(s source) (broken []string) {
	seen := map[string]bool{}
	for _, f := range s.goFiles {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		key := f.dir + " " + name
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, drawer := range []string{"util", "utils", "common", "helper", "helpers", "misc", "lib", "models"} {
			if name == drawer || path.Base(f.dir) == drawer {
				broken = append(broken, fmt.Sprintf("%s: package %s: a package is named by what it gives, not as a drawer", f.path, name))
			}
		}
	}
	return broken
}

func checkInit(s source) (broken []string) {
	for _, f := range s.goFiles {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				broken = append(broken, fmt.Sprintf("%s: func init: many sidecars live in one test process, so nothing is registered by being imported", f.path))
			}
		}
	}
	return broken
}

// checkNothingSkipped finds tests that do not run: those that skip themselves, and those that no plain go test builds.
func checkNothingSkipped(s source) (broken []string) {
	for _, f := range s.goFiles {
		if f.test && !f.built {
			broken = append(broken, fmt.Sprintf("%s: no plain go test builds it: a test that does not run proves nothing", f.path))
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			skips := slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && slices.Contains([]string{"t", "b", "f", "tb", "rt"}, x.Name)
			short := x.Name == "testing" && sel.Sel.Name == "Short"
			if skips || short {
				broken = append(broken, fmt.Sprintf("%s: %s.%s: a test that does not run proves nothing; scripts/setup brings what it needs",
					s.fset.Position(sel.Pos()), x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return broken
}

// openWords mark unfinished work. They are put together here so that this file does not hold them.
func openWords() [][]byte {
	return [][]byte{[]byte("TO" + "DO"), []byte("FIX" + "ME"), []byte("XX" + "X")}
}

// checkNothingLeftOpen looks for the marks of unfinished work as words of their own.
func checkNothingLeftOpen(s source) (broken []string) {
	for _, f := range s.texts {
		for i, line := range bytes.Split(f.data, []byte("\n")) {
			for _, word := range openWords() {
				if hasWord(line, word) {
					broken = append(broken, fmt.Sprintf("%s:%d: %s: finish it, or say in the documentation what is not there", f.path, i+1, word))
				}
			}
		}
	}
	return broken
}

func hasWord(line, word []byte) bool {
	for from := 0; ; {
		at := bytes.Index(line[from:], word)
		if at < 0 {
			return false
		}
		at += from
		end := at + len(word)
		if (at == 0 || !letter(line[at-1])) && (end == len(line) || !letter(line[end])) {
			return true
		}
		from = at + 1
	}
}

func letter(b byte) bool {
	return b == '_' || ('0' <= b && b <= '9') || ('A' <= b && b <= 'Z') || ('a' <= b && b <= 'z')
}
