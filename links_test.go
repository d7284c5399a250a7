package ringside_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere: each link between the texts leads to a file that there is, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	texts, headings := map[string]string{}, map[string]bool{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "bin" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		texts[name] = string(text)
		for _, found := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(texts[name], -1) {
			headings[name+"#"+anchor(found[1])] = true
		}
		return err
	})
	if err != nil || len(texts) < 15 {
		t.Fatalf("%d texts, %v", len(texts), err)
	}
	for name, text := range texts {
		for _, found := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			file, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if heading != "" && !headings[target+"#"+heading] {
				t.Errorf("%s: there is no heading for %s", name, found[1])
			}
		}
	}
}

// anchor is the name by which a heading is linked to.
func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N}_\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(kept, " ", "-")
}
