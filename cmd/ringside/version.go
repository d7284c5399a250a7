package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print it as JSON."`
}

// version says which build this is.
type version struct {
	Version  string `json:"version"`            // of the module; "devel" outside a release
	Revision string `json:"revision,omitempty"` // of the source, with + when it was changed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// The linker sets these: to the name of the release, or of the commit that was built, and to its revision, as it is in version. Where it does not, as with a
// plain go build, what the Go toolchain has noted counts; but some machines tell it to note nothing (-buildvcs=false), and it does not know worktrees.
var released, revision string

// buildVersion reads what the linker and the Go toolchain have put into the program.
func buildVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info, released, revision)
}

func versionOf(info *debug.BuildInfo, released, revision string) version {
	v := version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	if released != "" {
		v.Version = released
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if v.Revision != "" {
		v.Revision += changed
	}
	if revision != "" {
		v.Revision = revision
	}
	return v
}

func (v version) String() string {
	revision := ""
	if v.Revision != "" {
		revision = v.Revision + ", "
	}
	return fmt.Sprintf("ringside %s (%s%s, %s)", v.Version, revision, v.Go, v.Platform)
}

func (c *versionCmd) Run(env *environment) error {
	v := buildVersion()
	if c.JSON {
		return json.NewEncoder(env.stdout).Encode(v)
	}
	_, err := fmt.Fprintln(env.stdout, v)
	return err
}
