package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy/expansion"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Sources of policies, and what Load makes of them.
type (
	// File is one file of a Source.
	File = module.File
	// Source is a tree of files. A package belongs to one source.
	Source = module.Source
	// LoadOptions bound what Load accepts.
	LoadOptions = module.Options
	// Set is the result of one Load: immutable, for any number of goroutines.
	Set = module.Set
	// Package is one policy.
	Package = module.Package
	// KindRef is a kind that a package names, at the version that it pins.
	KindRef = module.KindRef
	// KindSet is kinds that are named one by one or by a wildcard.
	KindSet = module.KindSet
	// Finding is one error or warning at a position in a file.
	Finding = module.Finding
	// Candidate is what the packages of a source are to be instead.
	Candidate = module.Candidate
	// LoadErrors are the findings for which nothing was loaded.
	LoadErrors = module.Errors
)

// Severities of findings, which are not those of policies.
const (
	SeverityError   = module.SeverityError
	SeverityWarning = module.SeverityWarning
)

// GatorPoint is the enforcement point at which Constraint.ActionsAt is asked for manifests
// that are checked before they are applied, as Gatekeeper's own tool does.
const GatorPoint = manifest.GatorPoint

// Severities returns the severities of policies, the lowest first.
func Severities() []string { return slices.Clone(module.Severities) }

// Load parses, compiles and checks the policies of all sources. It loads all of
// them, or none and returns LoadErrors. See package module for what is refused.
func Load(sources []Source, opts LoadOptions) (*Set, error) { return module.Load(sources, opts) }

// Beside returns an active set with what differs in candidates beside it: their versions of the packages of
// their sources, each compiled with its own candidate, and under a name of its own, which Set.Candidate
// returns. All others read what is active.
func Beside(active *Set, candidates []Candidate) *Set { return module.Beside(active, candidates) }

// Lint returns warnings about a set, by file, line and column, and errors where the
// engine would refuse the result of a rule.
func Lint(set *Set) []Finding { return module.Lint(set) }

// MayHoldDocuments reports whether a file is YAML or JSON by its name, of which Load takes templates and
// constraints of Gatekeeper, and ValidatingAdmissionPolicies with their bindings.
func MayHoldDocuments(file string) bool { return manifest.Reads(file) }

// Reads reports whether Load takes policies from a file, by its path and content. Tests are none.
func Reads(file string, data []byte) bool {
	if manifest.Reads(file) {
		return manifest.Mentions(data)
	}
	return strings.HasSuffix(file, ".rego") && !strings.HasSuffix(file, "_test.rego")
}

// Bounds on what ReadSource reads: more than Load accepts by default.
const (
	maxRead    = 4 << 20  // bytes of a file
	maxReadAll = 64 << 20 // bytes of a tree
	maxEntries = 100_000  // files and directories of a tree
)

// ReadSource reads the policies of a file tree: Rego, and YAML and JSON with
// ConstraintTemplates or constraints of Gatekeeper, or ValidatingAdmissionPolicies. Directories whose names begin with
// a dot are skipped, as are the contents of files that Load does not read.
// Policies are regular files, or symbolic links to them where the tree follows
// these: that of an os.Root follows none that leave it.
func ReadSource(name string, tree fs.FS) (Source, error) {
	s := Source{Name: name}
	entries, total := 0, 0
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if entries++; err == nil && entries > maxEntries {
			err = fmt.Errorf("more than %d files and directories", maxEntries)
		}
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := path.Base(p); p != "." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		case manifest.Reads(p):
			data, err := readDocuments(tree, p)
			total += len(data)
			s.Files = append(s.Files, File{Path: p, Data: data})
			if err == nil && total > maxReadAll {
				err = &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("the policies have more than %d bytes in total", maxReadAll)}
			}
			return err
		case !strings.HasSuffix(p, ".rego"):
			s.Files = append(s.Files, File{Path: p})
			return nil
		}
		data, err := readFile(tree, p)
		if err != nil {
			return err
		}
		if total += len(data); total > maxReadAll {
			return &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("the policies have more than %d bytes in total", maxReadAll)}
		}
		s.Files = append(s.Files, File{Path: p, Data: data})
		return nil
	})
	if err != nil {
		return Source{}, fmt.Errorf("source %q: %w", name, err)
	}
	return s, nil
}

// readDocuments reads a file of YAML or JSON that may hold policies. Others are not kept, whatever is wrong with them.
func readDocuments(tree fs.FS, p string) ([]byte, error) {
	info, err := fs.Stat(tree, p)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	data, err := readFile(tree, p)
	mentions := manifest.Mentions(data) || expansion.Mentions(data)
	if !mentions && len(data) > maxRead {
		return nil, nil // as far as it was read, it is of others
	}
	if err != nil || !mentions {
		return nil, err
	}
	return data, nil
}

func readFile(tree fs.FS, p string) (data []byte, err error) {
	// Stat before Open: opening a pipe blocks.
	info, err := fs.Stat(tree, p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: p, Err: errors.New("not a regular file")}
	}
	f, err := tree.Open(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("larger than %d bytes", maxRead)}
	}
	return data, err
}
