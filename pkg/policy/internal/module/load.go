package module

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/manifest"
)

// Options bound what Load accepts.
type Options struct {
	MaxFile  int // bytes of a file; 0 means 256 KiB
	MaxFiles int // of all sources; 0 means 2,000
	MaxTotal int // bytes of all sources; 0 means 16 MiB
}

func (o Options) validate() (Options, error) {
	for _, bound := range []struct {
		name  string
		value *int
		or    int
	}{{"MaxFile", &o.MaxFile, 256 << 10}, {"MaxFiles", &o.MaxFiles, 2000}, {"MaxTotal", &o.MaxTotal, 16 << 20}} {
		switch {
		case *bound.value < 0:
			return o, fmt.Errorf("options: %s is negative", bound.name)
		case *bound.value == 0:
			*bound.value = bound.or
		}
	}
	return o, nil
}

// Load loads a Set from sources, or returns Errors with everything that is wrong.
func Load(sources []Source, opts Options) (*Set, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	l := &loader{
		opts: opts, set: &Set{sources: slices.Clone(sources), Modules: map[string]*ast.Module{}, Tests: map[string]*ast.Module{}, texts: map[string][]byte{}},
		packages: map[string]*Package{}, source: map[string]string{}, text: map[string][]byte{}, consistent: map[*ast.Rule]bool{},
	}
	for _, stage := range []func(){
		func() { l.readAll(sources) },
		l.collect,
		l.compile,
		l.templates,
		l.checkAll,
	} {
		stage()
		if len(l.findings.list) > 0 {
			return nil, Errors(l.findings.sorted())
		}
	}
	return l.set, nil
}

// loader is one Load.
type loader struct {
	opts       Options
	findings   findings
	documents  manifest.Documents
	set        *Set
	packages   map[string]*Package
	source     map[string]string  // of a file's name
	text       map[string][]byte  // of a file's name
	consistent map[*ast.Rule]bool // whether the rules of one value cannot conflict
	work       int                // of analysis, in expressions
	files      int
	total      int
}

// readAll reads the files of all sources.
func (l *loader) readAll(sources []Source) {
	names := map[string]bool{}
	for _, s := range sources {
		if names[s.Name] {
			l.findings.fileError("source", "", "two sources are named %q", s.Name)
			continue
		}
		names[s.Name] = true
		l.documents.GatekeeperOnly = s.Manifests
		for _, f := range s.Files {
			l.read(s.Name, f)
		}
	}
	slices.Sort(l.set.Skipped)
}

// read reads one file.
func (l *loader) read(source string, f File) {
	name := f.Path
	if source != "" {
		name = source + "/" + f.Path
	}
	base := path.Base(f.Path)
	switch {
	case f.Path == "" || path.Clean(f.Path) != f.Path || path.IsAbs(f.Path) || strings.HasPrefix(f.Path, "../") || base == "..":
		l.findings.fileError("path", name, "%q is not a clean relative path", clip(f.Path))
		return
	case l.text[name] != nil:
		l.findings.fileError("path", name, "the file exists twice")
		return
	case !strings.HasSuffix(base, ".rego"):
		if reason := dataFile(base); reason != "" {
			l.findings.fileError("data-file", name, "%s", reason)
			return
		}
		if manifest.Reads(base) && manifest.Mentions(f.Data) {
			l.readDocuments(source, name, f)
			return
		}
		l.set.Skipped = append(l.set.Skipped, name)
		return
	case len(f.Data) > l.opts.MaxFile:
		l.findings.fileError("too-large", name, "the file has %d bytes; at most %d are allowed", len(f.Data), l.opts.MaxFile)
		return
	}
	l.files++
	l.total += len(f.Data)
	switch {
	case l.files > l.opts.MaxFiles:
		if l.files == l.opts.MaxFiles+1 {
			l.findings.fileError("too-many", name, "there are more than %d Rego files", l.opts.MaxFiles)
		}
		return
	case l.total > l.opts.MaxTotal:
		if l.total-len(f.Data) <= l.opts.MaxTotal {
			l.findings.fileError("too-large", name, "the Rego files have more than %d bytes in total", l.opts.MaxTotal)
		}
		return
	}
	l.text[name] = slices.Clip(append([]byte{}, f.Data...))
	l.source[name] = source
	m := parse(name, l.text[name], &l.findings)
	switch {
	case m == nil:
	case strings.HasSuffix(base, "_test.rego"):
		l.set.Tests[name] = m
	default:
		l.set.Modules[name] = m
		l.set.texts[name] = l.text[name]
	}
}

// dataFile returns why a file that is not Rego is refused: OPA would load it as data.
func dataFile(base string) string {
	switch base {
	case "data.json", "data.yaml", "data.yml":
		return "policies have no data files: write constants as rules, or take parameters"
	case ".manifest":
		return "bundles are not supported: a source is a tree of Rego files"
	}
	return ""
}

// capabilities are what policies may use: the language of Rego v1 without those
// future.keywords of OPA that the analysis does not support.
func capabilities() *ast.Capabilities {
	c := limits.Capabilities()
	c.FutureKeywords = slices.DeleteFunc(slices.Clone(c.FutureKeywords), func(k string) bool {
		return k != "contains" && k != "every" && k != "if" && k != "in"
	})
	return c
}
