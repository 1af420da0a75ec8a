// Package module loads policies: it parses Rego and its METADATA, compiles it
// strictly, refuses what the house refuses, and finds out what each package can
// read.
package module

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// File is one file of a source.
type File struct {
	Path string // relative to the source, with slashes
	Data []byte
}

// Source is a tree of files. A package belongs to one source.
type Source struct {
	Name  string
	Files []File
}

// SubjectKind is what a package judges.
type SubjectKind uint8

// The kinds of subjects.
const (
	ObjectSubject SubjectKind = iota
	MemberSubject
	ViewSubject // the keys of one of the package's own views
)

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

// View is a view of a package.
type View struct {
	Name string
	Mask *mask.Mask // of input.object
	Row  int        // of the rule in the package's file
}

// Reads is what the rules of a package, its own functions included, can read.
type Reads struct {
	Object  *mask.Mask // of input.object; nil when it is not read
	Views   []ViewRef  // sorted
	ByName  []KindRef  // data.fleet.by_name[kind]
	Objects []KindRef  // data.fleet.objects[kind]
	Scopes  bool
	Names   bool       // data.fleet.names
	Members *mask.Mask // of data.fleet.members[_]; nil when not read
	Member  *mask.Mask // of input.member
}

// Package is one policy.
type Package struct {
	Name         string // as after data., e.g. "federator.network.unique_ingress_host"
	Source, File string
	Title        string
	Description  string
	Severity     string // low, medium, high or critical
	AnyKind      bool   // kinds: ["*"]
	Kinds        []KindRef
	Subject      SubjectKind
	SubjectView  string // of a ViewSubject
	Remedies     []Remedy
	Parameters   *Schema // nil: the package takes none
	Views        []View
	Reads        Reads
}

// Schema is the JSON schema of a package's parameters.
type Schema struct {
	Raw map[string]any
}

// Set is what one load gave: immutable, for any number of goroutines.
type Set struct {
	Compiler *ast.Compiler
	Packages []*Package // by name
}
