package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Save keeps t at path for the next start. The file is replaced whole: a crash leaves the old one or the new one.
func Save(path string, t *Topology) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keeping the topology: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".topology-*")
	if err != nil {
		return fmt.Errorf("keeping the topology: %w", err)
	}
	_, err = f.Write(t.Encode())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // best effort: the error above is the one to report
		return fmt.Errorf("keeping the topology: %w", err)
	}
	return nil
}

// LoadFile reads what Save has kept; nil without an error when there is none.
func LoadFile(path string) (*Topology, error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kept topology: %w", err)
	}
	t, err := Decode(body)
	if err != nil {
		return nil, fmt.Errorf("kept topology %s: %w", path, err)
	}
	return t, nil
}
