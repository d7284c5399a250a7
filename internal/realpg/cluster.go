package realpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ringside/internal/childproc"
)

// createLimit bounds the creation of a data directory, which takes a second on a quiet machine.
const createLimit = 2 * time.Minute

// prepare makes sure that dir holds a data directory (R2). durable asks for it to be on the disk, not just in the system's cache.
func prepare(ctx context.Context, bin, dir string, a account, durable bool) error {
	switch _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); {
	case err == nil:
		return a.admit(dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("neither an empty nor a PostgreSQL data directory: %w", err)
	}
	if err := a.admit(dir); err != nil {
		return err
	}
	fresh := dir + ".initdb" // what an interrupted start left here is of no use
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := a.own(fresh); err != nil {
		return err
	}
	create := initdb
	if os.Getenv(TemplatesVar) != "" && !durable {
		create = copied
	}
	if err := create(ctx, bin, fresh, a, durable); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return os.Rename(fresh, dir)
}

// TemplatesVar is the environment variable that names a directory for temporary files in which the programs that share it keep what initdb makes. It
// costs a second or two of processor time, a copy of it next to nothing; a run of all tests needs some seventy. All copies have one system identifier.
const TemplatesVar = "RINGSIDE_PG_TEMPLATES"

// copied makes in dir what initdb makes. The first one who needs it makes the template; of several at a time one does.
func copied(ctx context.Context, bin, dir string, a account, durable bool) error {
	template := filepath.Join(os.Getenv(TemplatesVar), "data")
	if _, err := os.Stat(filepath.Join(template, "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		if err := makeTemplate(ctx, bin, template, a); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	cp, err := exec.LookPath("cp")
	if err != nil {
		return err
	}
	return a.run(ctx, cp, dir, "-R", "-p", template+"/.", dir)
}

func makeTemplate(ctx context.Context, bin, template string, a account) error {
	made, err := os.MkdirTemp(filepath.Dir(template), "making-")
	if err != nil {
		return err
	}
	err = errors.Join(a.admit(made), a.own(made))
	if err == nil {
		err = initdb(ctx, bin, made, a, false)
	}
	if err == nil {
		if err = os.Rename(made, template); err == nil {
			return nil
		}
		if _, there := os.Stat(filepath.Join(template, "PG_VERSION")); there == nil {
			err = nil // somebody else was first
		}
	}
	return errors.Join(err, os.RemoveAll(made))
}

func initdb(ctx context.Context, bin, dir string, a account, durable bool) error {
	args := []string{
		"--pgdata", dir, "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions",
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	return a.run(ctx, filepath.Join(bin, "initdb"), dir, args...)
}

// run runs one of the server's programs to its end, in dir, as the account.
func (a account) run(ctx context.Context, program, dir string, args ...string) error {
	proc, err := childproc.Start(childproc.Options{Path: program, Args: args, Dir: dir, Env: environment(), Credential: a.credential})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	select {
	case <-proc.Done():
		return proc.Err()
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(program), context.Cause(ctx)), proc.Stop(syscall.SIGINT, stopGrace))
	}
}

// environment is ours without PG*, which would change what the programs do, and without a locale that might not be installed.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C")
}
