package input

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// maxStdin bounds what is read of standard input, in bytes.
const maxStdin = 256 << 20

// Policies returns the files of the manifests with ConstraintTemplates and constraints of
// Gatekeeper, if there are any ConstraintTemplates, or other policies. Those in the
// directories of policies are left out: they are read as such. ValidatingAdmissionPolicies
// among manifests are objects: a cluster may have some that ask about requests.
func (f *Flags) Policies(in io.Reader, dirs []string) ([]policy.Source, error) {
	var out []policy.Source
	templates := len(dirs) > 0
	for _, arg := range f.manifests {
		_, p := f.memberOf(arg)
		s, err := f.policySource(p, in)
		if err != nil {
			return nil, err
		}
		for _, file := range s.Files {
			if !policy.MayHoldDocuments(file.Path) || !policy.Reads(file.Path, file.Data) || within(dirs, filepath.Join(s.Name, file.Path)) {
				continue
			}
			templates = templates || bytes.Contains(file.Data, []byte("templates.gatekeeper.sh/"))
			out = withFile(out, s.Name, file)
		}
	}
	if !templates {
		return nil, nil
	}
	return out, nil
}

// withFile returns sources with a file of one of that name. The names of sources differ.
func withFile(sources []policy.Source, name string, file policy.File) []policy.Source {
	for i := range sources {
		if sources[i].Name == name {
			sources[i].Files = append(sources[i].Files, file)
			return sources
		}
	}
	return append(sources, policy.Source{Name: name, Files: []policy.File{file}, Manifests: true})
}

// memberOf splits the value of a flag into a member, or the default one, and a path.
func (f *Flags) memberOf(arg string) (member, file string) {
	if m, p, ok := strings.Cut(arg, "="); ok {
		if _, err := os.Stat(arg); err != nil { // else it is a file with = in its name
			return m, p
		}
	}
	return f.member, arg
}

// policySource reads the files of a path. Standard input is kept for who reads it next.
func (f *Flags) policySource(p string, in io.Reader) (s policy.Source, err error) {
	if p == "-" {
		if f.stdin == nil {
			if f.stdin, err = io.ReadAll(io.LimitReader(in, maxStdin+1)); err != nil {
				return s, err
			}
			if len(f.stdin) > maxStdin {
				return s, fmt.Errorf("standard input has more than %d bytes", maxStdin)
			}
		}
		return policy.Source{Name: "standard input", Files: []policy.File{{Path: "manifests.yaml", Data: f.stdin}}}, nil
	}
	info, err := os.Stat(p)
	if err != nil {
		return s, err
	}
	if info.IsDir() {
		return policy.ReadSource(filepath.ToSlash(filepath.Clean(p)), os.DirFS(p))
	}
	if !info.Mode().IsRegular() {
		return s, nil // such as a pipe, which can be read once
	}
	data, err := os.ReadFile(p)
	name := filepath.Base(p)
	return policy.Source{Name: filepath.ToSlash(filepath.Dir(p)), Files: []policy.File{{Path: name, Data: data}}}, err
}

// within reports whether a file is in one of the directories.
func within(dirs []string, file string) bool {
	for _, dir := range dirs {
		if rel, err := filepath.Rel(absolute(dir), absolute(file)); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

func absolute(p string) string {
	if a, err := filepath.Abs(p); err == nil {
		return a
	}
	return p
}
