package module

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// File is one file of a source.
type File struct {
	Path string // relative to the source, with slashes
	Data []byte
}

// Source is a tree of files. A package belongs to one source.
type Source struct {
	Name  string // unique; files are reported as Name/Path, or as Path without one
	Files []File
	// Manifests says that the files are manifests to be judged: of what they have, only
	// Gatekeeper's templates and constraints are policies.
	Manifests bool
}

// SubjectKind is what a package evaluates.
type SubjectKind uint8

// The kinds of subjects.
const (
	ObjectSubject SubjectKind = iota
	MemberSubject
	ViewSubject // the keys of one of the package's own views
)

// String returns the subject as in custom.subject, without the name of a view.
func (k SubjectKind) String() string { return [...]string{"object", "member", "view"}[k] }

// KindRef is a kind that a package names, at the version that it pins, if any.
type KindRef struct {
	Kind    aggregate.Kind
	Version string // "" is the held version
}

// Remedy is a remedy that a package declares.
type Remedy struct {
	Action string // apply, patch or delete
	Kind   aggregate.Kind
}

// ViewRef names a view.
type ViewRef struct{ Package, View string }

// View is a view of a package. Objects of the package's kinds contribute to it.
type View struct {
	Name string
	Mask *mask.Mask // of input.object
	Row  int        // of its first rule, in File
	File string
}

// Reads is what the rules of a package, its own functions included, can read.
// Lists are sorted and have no duplicates.
type Reads struct {
	Object   *mask.Mask // of input.object; nil when it is not read
	Views    []ViewRef
	ByName   []KindRef              // data.fleet.by_name[kind]
	Objects  []KindRef              // data.fleet.objects[kind]
	Fleet    map[KindRef]*mask.Mask // of each object of a kind, through either document
	Scopes   bool
	Names    bool       // data.fleet.names
	Time     bool       // data.fleet.passed
	External []string   // sources of data.fleet.external, sorted
	Members  *mask.Mask // of data.fleet.members[_]; nil when not read
	Member   *mask.Mask // of input.member; nil when not read
	Ref      *mask.Mask // of input.ref; nil when not read

	// Of templates: what is read in the subject's member alone, or in all visible ones where
	// a constraint says so.
	Own             []KindRef
	Inventory       []InventoryKind // data.inventory
	NamespaceObject *mask.Mask      // of input.review.namespaceObject; nil when not read
	Review          *mask.Mask      // of input.review, of a template in Rego; nil when not read
}

// EqualButViews reports whether both read the same, views aside.
func (r *Reads) EqualButViews(other *Reads) bool {
	same := maps.EqualFunc(r.Fleet, other.Fleet, (*mask.Mask).Equal) &&
		r.Object.Equal(other.Object) && r.Members.Equal(other.Members) && r.Member.Equal(other.Member) &&
		r.Ref.Equal(other.Ref) && r.NamespaceObject.Equal(other.NamespaceObject) && r.Review.Equal(other.Review)
	return same && reflect.DeepEqual(r.butMasksAndViews(), other.butMasksAndViews())
}

// butMasksAndViews leaves out masks, which have more than what they read.
func (r *Reads) butMasksAndViews() Reads {
	x := *r
	x.Views, x.Fleet = nil, nil
	x.Object, x.Members, x.Member, x.Ref, x.NamespaceObject, x.Review = nil, nil, nil, nil, nil, nil
	return x
}

// OfFleet reports whether any document of data.fleet can be read that objects or members make. What time it
// is, is the same for all subjects and tells nothing of others.
func (r *Reads) OfFleet() bool {
	return len(r.Views)+len(r.ByName)+len(r.Objects)+len(r.Own) > 0 || r.Scopes || r.Names || r.Members != nil
}

// Package is one policy.
type Package struct {
	Name              string // as after data., e.g. "federator.network.unique_ingress_host"
	Source, File      string // File is the one with its METADATA, as findings name it
	Row               int    // of its METADATA
	Title             string
	Description       string
	Severity          string   // low, medium, high or critical
	AnyKind           bool     // kinds: ["*"]
	Groups            []string // kinds: ["*.GROUP"]; sorted. "": the core group, of a constraint
	Kinds             []KindRef
	HasViolationRules bool                  // it has violation rules, not views only
	Template          *manifest.Template    // that the package was translated from; nil for others
	Admission         *Admission            // the ValidatingAdmissionPolicy that the package is; nil for others
	Compiler          *ast.Compiler         // of a Template or an Admission, and of a version of a candidate
	CEL               *admissioncel.Program // of a Template with engine K8sNativeValidation or an Admission, instead of rules
	Indexes           []Index               // of a Template, of data.inventory
	Subject           SubjectKind
	SubjectView       string // of a ViewSubject
	Remedies          []Remedy
	Parameters        *Schema // nil: the package takes none
	Views             []View  // by name
	Reads             Reads
	WideReads         []Finding // reads of every member, or of every key of a view

	// Of a version of a candidate: what it is a version of, the candidate's set, and the names of all its versions
	// by what they are versions of.
	versionOf  string
	home       *Set
	candidates map[string]string

	// byNamespaces says that constraints of the package select Namespaces by their labels.
	byNamespaces bool
	libraryOf    *Package // the one package that may refer to it, of a template's library
	celWarnings  []string // of what Gatekeeper evaluates otherwise than it is written
	guards       []guard  // of violation and views, rule by rule
	annotations  *ast.Annotations
	modules      []*ast.Module          // as written
	rules        []*ast.Rule            // compiled
	byName       map[string][]*ast.Rule // the same, by the first step of their names
}

// Set is the result of one load: immutable, for any number of goroutines.
type Set struct {
	Compiler *ast.Compiler
	Packages []*Package // by name
	// Modules are the parsed files, and Tests those named *_test.rego, which are not
	// part of the running set, by their name in findings.
	Modules, Tests map[string]*ast.Module
	// Skipped are the files that Load does not read.
	Skipped []string
	// Templates are those that were read, by kind, and Constraints what applies them and
	// ValidatingAdmissionPolicies, by their full names.
	Templates   []*manifest.Template
	Constraints []*manifest.Constraint

	texts         map[string][]byte // of Modules, and of files with templates
	templateRules map[string]*ast.Module
	sources       []Source // that were loaded

	active     *Set // of a set with candidates beside it
	beside     []Candidate
	candidates map[string]string // names of versions, by what they are versions of

	once         sync.Once // for fingerprints, which are computed on first use
	fingerprints map[string]string
}

// Sources returns what was loaded. It must not be changed.
func (s *Set) Sources() []Source { return s.sources }

// Package returns the package with a name, nil when there is none.
func (s *Set) Package(name string) *Package {
	i, ok := slices.BinarySearchFunc(s.Packages, name, func(p *Package, name string) int { return cmp.Compare(p.Name, name) })
	if !ok {
		return nil
	}
	return s.Packages[i]
}

// Files returns the files of a package as they were loaded, tests not included, by their name in
// findings. Their data must not be changed.
func (s *Set) Files(pkg string) []File {
	s, pkg = s.of(pkg)
	p := s.Package(pkg)
	if p == nil {
		return nil
	}
	var out []File
	for _, m := range p.modules {
		name := m.Package.Location.File
		if slices.ContainsFunc(out, func(f File) bool { return f.Path == name }) {
			continue
		}
		out = append(out, File{Path: name, Data: s.texts[name]})
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// SameText reports whether two sets have a file with the same text.
func (s *Set) SameText(other *Set, file string) bool {
	text, ok := s.texts[file]
	was, had := other.texts[file]
	return ok && had && bytes.Equal(text, was)
}

// TestsOf returns how many tests a package has in files that are named as tests: rules test_… of the package itself or of
// <package>_test. Rules of one name are one test.
func (s *Set) TestsOf(pkg string) int {
	s, pkg = s.of(pkg)
	names := map[string]bool{}
	for _, m := range s.Tests {
		of := strings.TrimPrefix(m.Package.Path.String(), "data.")
		if strings.TrimSuffix(of, "_test") != pkg {
			continue
		}
		for _, r := range m.Rules {
			if name := r.Head.Ref().String(); strings.HasPrefix(name, "test_") {
				names[of+"."+name] = true
			}
		}
	}
	return len(names)
}

// RuleAt returns the name of the rule that a line of a file belongs to, such as violation; "" where there is none. Files
// of a version of a candidate are those of the set Of it.
func (s *Set) RuleAt(file string, row int) (rule string) {
	at := 0
	look := func(m *ast.Module) {
		for _, r := range m.Rules {
			if start := r.Location.Row; start <= row && start > at {
				at, rule = start, r.Head.Ref().String()
			}
		}
	}
	if m := s.Modules[file]; m != nil {
		look(m)
		return rule
	}
	for _, m := range s.templateRules {
		if m.Package.Location.File == file {
			look(m)
		}
	}
	return rule
}

// View returns the view with a name, nil when there is none.
func (p *Package) View(name string) *View {
	i, ok := slices.BinarySearchFunc(p.Views, name, func(v View, name string) int { return cmp.Compare(v.Name, name) })
	if !ok {
		return nil
	}
	return &p.Views[i]
}

// KindsRead returns the kinds that the package evaluates or reads, those of views of other
// packages aside.
func (p *Package) KindsRead() []KindRef {
	kinds := slices.Concat(p.Kinds, p.Reads.ByName, p.Reads.Objects, p.Reads.Own)
	if p.byNamespaces {
		kinds = append(kinds, KindRef{Kind: namespaceKind})
	}
	return kinds
}

// Kinds returns the kinds that the packages evaluate, build views from or read, sorted,
// and whether a package is about every kind.
func (s *Set) Kinds() (kinds []KindRef, anyKind bool) {
	for _, p := range s.Packages {
		kinds = slices.Concat(kinds, p.KindsRead())
		anyKind = anyKind || p.AnyKind
	}
	return sortKinds(kinds), anyKind
}

func sortKinds(kinds []KindRef) []KindRef {
	slices.SortFunc(kinds, func(a, b KindRef) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version))
	})
	return slices.Compact(kinds)
}

// ClusterTexts reports whether it reads annotations of members' Clusters or messages of their conditions.
func (r *Reads) ClusterTexts() bool {
	for _, m := range []*mask.Mask{r.Member, r.Members} {
		if m.Child("annotations") != nil || readsMessages(m.Child("conditions")) {
			return true
		}
	}
	return false
}

func readsMessages(conditions *mask.Mask) bool {
	if conditions == nil {
		return false
	}
	if conditions.All || conditions.Elem.Child("message") != nil {
		return true
	}
	for _, c := range conditions.Fields {
		if c.Child("message") != nil {
			return true
		}
	}
	return false
}
