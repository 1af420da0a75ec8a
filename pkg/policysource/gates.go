package policysource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/pkg/policysource/internal/signature"
)

// verdict is what the gates say of a candidate.
type verdict struct {
	phase    Phase // Active, or the gate that it did not pass
	reason   string
	message  string
	findings []policy.Finding
	diff     *Difference
	// again says that the same candidate may pass later; not that it will.
	again bool
	// unjudged says that a gate could not be asked, rather than that it refused.
	unjudged  bool
	candidate Candidate
}

// refused is a verdict of a gate.
func refused(phase Phase, reason, format string, args ...any) *verdict {
	return &verdict{phase: phase, reason: reason, message: fmt.Sprintf(format, args...)}
}

// judge leads a fetched commit through the gates after Fetch. bounded says whether
// MaxDiff holds.
func (o Options) judge(ctx context.Context, s spec, got *checkout.Result, st *State, bounded bool, now time.Time) (out *verdict) {
	defer func() {
		if r := recover(); r != nil { // one source's policies are no other's trouble
			out = refused(Compile, "Panic", "commit %s: panic: %s", got.Commit, shorten(fmt.Sprint(r)))
			out.candidate.Commit = Commit{Hash: got.Commit, Ref: got.Ref, Path: repositoryPath(s.Path)}
			o.Log.Error("judging policies panicked", "source", s.Name, "commit", got.Commit, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	c := Candidate{Source: s.Name, Tree: got.Tree, Active: st.Set, Commit: Commit{
		Hash: got.Commit, Ref: got.Ref, Path: repositoryPath(s.Path), Author: got.Author.Name + " <" + got.Author.Email + ">", Time: got.Author.When,
	}}
	var all []policy.Finding
	var diff *Difference
	for _, gate := range []func() *verdict{
		func() *verdict { return s.verify(&c, got, now) },
		func() *verdict { return content(&c) },
		func() *verdict { return o.compile(&c, st) },
		func() (v *verdict) { all, v = lint(&c); return v },
		func() *verdict {
			found, v := o.test(ctx, c)
			all = append(all, found...)
			return v
		},
		func() (v *verdict) {
			var untold []policy.Finding
			diff, untold, v = o.diff(ctx, s, c, bounded)
			all = append(all, untold...)
			return v
		},
	} {
		if v := gate(); v != nil {
			v.candidate, v.diff = c, diff
			v.findings = bound(append(all, v.findings...))
			return v
		}
	}
	return &verdict{phase: Active, reason: "Active", message: "commit " + c.Commit.Hash + " is active", findings: bound(all), diff: diff, candidate: c}
}

func repositoryPath(p string) string { return path.Clean(strings.TrimSuffix(p, "/")) }

// verify is the gate for signatures: that of the commit, or else of a tag that
// leads to it.
func (s spec) verify(c *Candidate, got *checkout.Result, now time.Time) *verdict {
	if s.verifier == nil {
		return nil
	}
	err := signature.ErrUnsigned
	for i, signed := range got.Signed {
		who, e := s.verifier.Verify(signed.Payload, signed.Signature, signed.When, now)
		if e == nil {
			c.Commit.Signer = who
			return nil
		}
		if i == 0 {
			err = e
		}
	}
	v := refused(Verify, "Signature", "commit %s: %v", got.Commit, err)
	for reason, kind := range map[string]error{
		"Unsigned": signature.ErrUnsigned, "Untrusted": signature.ErrUntrusted, "Expired": signature.ErrExpired, "Revoked": signature.ErrRevoked,
	} {
		if errors.Is(err, kind) {
			v.reason = reason
		}
	}
	v.again = true // keys have times
	return v
}

// content is the gate for trees that no policy can come of.
func content(c *Candidate) *verdict {
	files, err := policy.ReadSource(c.Source, c.Tree)
	if err != nil {
		return refused(Content, "Content", "%v", err)
	}
	c.Files = files
	for _, f := range files.Files {
		if strings.HasSuffix(f.Path, ".rego") && !strings.HasSuffix(f.Path, "_test.rego") {
			return nil
		}
	}
	return refused(Content, "Emptied", "commit %s has no policy below %q", c.Commit.Hash, c.Commit.Path)
}

// compile is the gate for what does not load, alone or with what is active.
func (o Options) compile(c *Candidate, st *State) *verdict {
	set, err := policy.Load(append(st.sources(o.Base, c.Source), c.Files), o.Load)
	if err != nil {
		v := refused(Compile, "Compile", "commit %s does not compile: %s", c.Commit.Hash, shorten(err.Error()))
		var list policy.LoadErrors
		if errors.As(err, &list) {
			v.findings = c.place(list)
			v.message = fmt.Sprintf("commit %s does not compile: %s", c.Commit.Hash, first(v.findings))
		}
		return v
	}
	if len(packages(set, c.Source)) == 0 {
		return refused(Content, "Emptied", "commit %s has no package with METADATA below %q", c.Commit.Hash, c.Commit.Path)
	}
	c.Set = set
	return nil
}

// place gives a candidate's findings their paths in the repository.
func (c Candidate) place(list []policy.Finding) []policy.Finding {
	out := slices.Clone(list)
	for i, f := range out {
		if rest, ok := strings.CutPrefix(f.File, c.Source+"/"); ok {
			out[i].File = path.Join(c.Commit.Path, rest)
		}
	}
	return out
}

// lint is the gate for findings of severity error; the others are returned.
func lint(c *Candidate) ([]policy.Finding, *verdict) {
	own := slices.DeleteFunc(slices.Clone(policy.Lint(c.Set)), func(f policy.Finding) bool { return !strings.HasPrefix(f.File, c.Source+"/") })
	own = c.place(own)
	if e := first(own); e != "" {
		return own, refused(Lint, "Lint", "commit %s: %s", c.Commit.Hash, e)
	}
	return own, nil
}

func (o Options) test(ctx context.Context, c Candidate) ([]policy.Finding, *verdict) {
	found, err := o.Test(ctx, c)
	found = slices.Clone(found) // it is the caller's
	for i, f := range found {
		if f.File != "" {
			found[i].File = path.Join(c.Commit.Path, f.File)
		}
	}
	if err != nil {
		v := refused(Test, "NotRun", "the tests of commit %s could not be run: %s", c.Commit.Hash, shorten(err.Error()))
		v.again, v.unjudged = true, true
		return found, v
	}
	if e := first(found); e != "" {
		return found, refused(Test, "Test", "a test of commit %s fails: %s", c.Commit.Hash, e)
	}
	return found, nil
}

// diff is the gate for changes that are too wide. They are told, and reported,
// without a bound as well.
func (o Options) diff(ctx context.Context, s spec, c Candidate, bounded bool) (*Difference, []policy.Finding, *verdict) {
	if o.Diff == nil {
		return nil, nil, nil
	}
	bounded = bounded && s.MaxDiff > 0
	d, err := o.Diff(ctx, c)
	switch {
	case err != nil && !bounded:
		untold := "what the commit changes could not be told: " + shorten(err.Error())
		return nil, []policy.Finding{{Code: "diff", Severity: policy.SeverityWarning, Message: untold}}, nil
	case err != nil:
		v := refused(Diff, "NotTold", "what commit %s changes could not be told: %s", c.Commit.Hash, shorten(err.Error()))
		v.again, v.unjudged = true, true
		return nil, nil, v
	case bounded && d.Total() > s.MaxDiff:
		v := refused(Diff, "TooWide", "commit %s changes %d verdicts; at most %d may change at once", c.Commit.Hash, d.Total(), s.MaxDiff)
		v.again = true // the fleet changes, too
		return &d, nil, v
	}
	return &d, nil, nil
}

// first returns the first error of some findings, "" when there is none.
func first(list []policy.Finding) string {
	for _, f := range list {
		if f.Severity == policy.SeverityError {
			return shorten(f.String())
		}
	}
	return ""
}

const (
	maxFindings = 50  // of a status
	maxMessage  = 500 // bytes
)

// bound returns errors first, no more than a status takes.
func bound(list []policy.Finding) []policy.Finding {
	slices.SortStableFunc(list, func(a, b policy.Finding) int {
		switch {
		case a.Severity == b.Severity:
			return 0
		case a.Severity == policy.SeverityError:
			return -1
		}
		return 1
	})
	out := slices.Clone(list[:min(len(list), maxFindings)])
	for i := range out {
		out[i].Message = shorten(out[i].Message)
	}
	return out
}

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
