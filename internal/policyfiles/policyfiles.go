package policyfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

// Load loads the policies in directories, or the library that ships with federator if
// there are none.
func Load(dirs []string) (*policy.Set, error) {
	sources, err := ReadSources(dirs)
	if err != nil {
		return nil, err
	}
	set, _, err := LoadSources(sources, dirs)
	return set, err
}

// LoadSources loads the policies of sources, which come of what names say, and reads the
// ExpansionTemplates beside them.
func LoadSources(sources []policy.Source, names []string) (*policy.Set, *Expansions, error) {
	set, err := policy.Load(sources, policy.LoadOptions{})
	if err != nil {
		return nil, nil, err
	}
	if len(set.Packages) == 0 {
		return nil, nil, fmt.Errorf("no policy found in %s", strings.Join(names, ", "))
	}
	expansions, err := readExpansions(sources)
	return set, expansions, err
}

func ReadSources(dirs []string) ([]policy.Source, error) {
	if len(dirs) == 0 {
		library, err := policy.ReadSource("policies", policies.FS)
		return []policy.Source{library}, err
	}
	sources := make([]policy.Source, 0, len(dirs))
	for _, dir := range dirs {
		s, err := readDirectory(dir)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// readDirectory reads the policies in a directory. Symbolic links that leave it are
// not followed.
func readDirectory(dir string) (s policy.Source, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return s, err
	}
	if !info.IsDir() {
		return s, &fs.PathError{Op: "read policies", Path: dir, Err: errors.New("not a directory")}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := filepath.ToSlash(filepath.Clean(dir))
	if name == "." {
		name = ""
	}
	return policy.ReadSource(name, root.FS())
}
