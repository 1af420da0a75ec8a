package gitops

import (
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// The kinds that may be trusted.
const (
	Application   aggregate.Kind = "Application.argoproj.io"
	Kustomization aggregate.Kind = "Kustomization.kustomize.toolkit.fluxcd.io"
	HelmRelease   aggregate.Kind = "HelmRelease.helm.toolkit.fluxcd.io"
)

// sourceKinds are the kinds of Flux's sources, which have the URLs of repositories.
var sourceKinds = []aggregate.Kind{
	"GitRepository.source.toolkit.fluxcd.io", "OCIRepository.source.toolkit.fluxcd.io", "HelmRepository.source.toolkit.fluxcd.io", "Bucket.source.toolkit.fluxcd.io",
}

// Trust names objects that are believed when they say what they own. Members, Namespaces and
// Names are patterns, in which * stands for any text; no Names are all.
type Trust struct {
	Kind                       aggregate.Kind
	Members, Namespaces, Names []string
}

// Validate returns what is wrong with it.
func (t *Trust) Validate() error {
	if t.Kind != Application && t.Kind != Kustomization && t.Kind != HelmRelease {
		return fmt.Errorf("kind %q is not %s, %s or %s", t.Kind, Application, Kustomization, HelmRelease)
	}
	if len(t.Members) == 0 || len(t.Namespaces) == 0 {
		return fmt.Errorf("members and namespaces with trusted objects of kind %s are required", t.Kind)
	}
	if slices.Contains(slices.Concat(t.Members, t.Namespaces, t.Names), "") {
		return fmt.Errorf("a pattern for kind %s is empty", t.Kind)
	}
	return nil
}

// trusts reports whether an object is trusted.
func (t *Trust) trusts(ref aggregate.Ref) bool {
	return ref.Kind == t.Kind && matchAny(t.Members, ref.Member) && matchAny(t.Namespaces, ref.Namespace) && (len(t.Names) == 0 || matchAny(t.Names, ref.Name))
}

func matchAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, text) })
}

// match reports whether a text matches a pattern, in which * stands for any text.
func match(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(text, part)
		}
		n := strings.Index(text, part)
		if n < 0 {
			return false
		}
		text, rest = text[n+len(part):], more
	}
}
