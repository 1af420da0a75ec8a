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

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/pkg/policysource/internal/signature"
)

// gateResult is the result of the gates for a candidate.
type gateResult struct {
	phase    Phase // Active, or the gate that failed
	reason   string
	message  string
	findings []policy.Finding
	diff     *Difference
	// retriable is true if the same candidate may pass later.
	retriable bool
	// inconclusive is true if a gate could not be evaluated, rather than failed.
	inconclusive bool
	candidate    Candidate
	rollingOut   *RollingOut // the candidate is not active yet; nil: it is not one that rolls out
}

// rejection returns the result of a gate that failed.
func rejection(phase Phase, reason, format string, args ...any) *gateResult {
	return &gateResult{phase: phase, reason: reason, message: fmt.Sprintf(format, args...)}
}

// runGates evaluates the gates after Fetch for a commit. reserved are packages that only
// their sources may have, bounded is whether MaxDiff applies.
func (o Options) runGates(ctx context.Context, s validSource, got *checkout.Result, st *State, reserved map[string]string, bounded bool, now time.Time) (out *gateResult) {
	defer func() {
		if r := recover(); r != nil { // a source must not affect others
			out = rejection(Compile, "Panic", "commit %s: panic: %s", got.Commit, shorten(fmt.Sprint(r)))
			out.candidate.Commit = Commit{Hash: got.Commit, Ref: got.Ref, Path: repositoryPath(s.Path)}
			o.Logger.Error("evaluating the gates panicked", "source", s.Name, "commit", got.Commit, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	c := Candidate{Source: s.Name, Tree: got.Tree, Active: st.Set, Commit: Commit{
		Hash: got.Commit, Ref: got.Ref, Path: repositoryPath(s.Path), Author: got.Author.Name + " <" + got.Author.Email + ">", Time: got.Author.When,
	}}
	var all []policy.Finding
	var diff *Difference
	for _, gate := range []func() *gateResult{
		func() *gateResult { return s.verify(&c, got, now) },
		func() *gateResult { return checkContent(&c) },
		func() *gateResult { return o.compile(&c, st, reserved) },
		func() (v *gateResult) { all, v = lint(&c); return v },
		func() *gateResult {
			findings, v := o.test(ctx, c)
			all = append(all, findings...)
			return v
		},
		func() (v *gateResult) {
			var findings []policy.Finding
			diff, findings, v = o.diff(ctx, s, c, bounded)
			all = append(all, findings...)
			return v
		},
	} {
		if v := gate(); v != nil {
			v.candidate, v.diff = c, diff
			v.findings = limitFindings(append(all, v.findings...))
			return v
		}
	}
	return &gateResult{phase: Active, reason: "Active", message: "commit " + c.Commit.Hash + " is active", findings: limitFindings(all), diff: diff, candidate: c}
}

func repositoryPath(p string) string { return path.Clean(strings.TrimSuffix(p, "/")) }

// verify is the gate for signatures: the commit, or an annotated tag that points to it,
// must be signed.
func (s validSource) verify(c *Candidate, got *checkout.Result, now time.Time) *gateResult {
	if s.verifier == nil {
		return nil
	}
	err := signature.ErrUnsigned
	for i, signed := range got.Signed {
		who, e := s.verifier.Verify(signed.Payload, signed.Signature, signed.When, now)
		if e == nil {
			c.Commit.Signer = who
			if signed.Object == "commit" {
				c.author = who
			}
			return nil
		}
		if i == 0 {
			err = e
		}
	}
	v := rejection(Verify, "Signature", "commit %s: %v", got.Commit, err)
	for reason, kind := range map[string]error{
		"Unsigned": signature.ErrUnsigned, "Untrusted": signature.ErrUntrusted, "Expired": signature.ErrExpired, "Revoked": signature.ErrRevoked,
	} {
		if errors.Is(err, kind) {
			v.reason = reason
		}
	}
	v.retriable = true // keys have validity periods
	return v
}

// holdsPolicies reports whether a file has a package, or policies that are Kubernetes objects: of YAML and
// JSON, only such files are read.
func holdsPolicies(f policy.File) bool {
	if strings.HasSuffix(f.Path, ".rego") {
		return !strings.HasSuffix(f.Path, "_test.rego")
	}
	return len(f.Data) > 0
}

// checkContent is the gate for commits without policies.
func checkContent(c *Candidate) *gateResult {
	files, err := policy.ReadSource(c.Source, c.Tree)
	if err != nil {
		return rejection(Content, "Content", "%v", err)
	}
	c.Files = files
	if slices.ContainsFunc(files.Files, holdsPolicies) {
		return nil
	}
	return rejection(Content, "Emptied", "commit %s contains no policy in %q", c.Commit.Hash, c.Commit.Path)
}

// compile is the gate for policies that do not compile with the active ones.
func (o Options) compile(c *Candidate, st *State, reserved map[string]string) *gateResult {
	set, err := policy.Load(append(st.sources(o.Base, c.Source), c.Files), o.Load)
	if err != nil {
		v := rejection(Compile, "Compile", "commit %s does not compile: %s", c.Commit.Hash, shorten(err.Error()))
		var list policy.LoadErrors
		if errors.As(err, &list) {
			v.findings = c.repositoryPaths(list)
			v.message = fmt.Sprintf("commit %s does not compile: %s", c.Commit.Hash, firstError(v.findings))
		}
		return v
	}
	own := packages(set, c.Source)
	if len(own) == 0 {
		return rejection(Content, "Emptied", "commit %s contains no package with METADATA, no ConstraintTemplate and no ValidatingAdmissionPolicy in %q", c.Commit.Hash, c.Commit.Path)
	}
	for _, pkg := range own {
		if owner, taken := reserved[pkg]; taken && owner != c.Source {
			v := rejection(Compile, "PackageTaken", "commit %s: package %s is that of source %q, which has not been read since the start", c.Commit.Hash, pkg, owner)
			v.retriable = true // that source may give it up, or be removed
			return v
		}
	}
	c.Set = set
	return nil
}

// repositoryPaths changes the paths of a candidate's findings to those in the repository.
func (c Candidate) repositoryPaths(list []policy.Finding) []policy.Finding {
	out := slices.Clone(list)
	for i, f := range out {
		if rest, ok := strings.CutPrefix(f.File, c.Source+"/"); ok {
			out[i].File = path.Join(c.Commit.Path, rest)
		}
	}
	return out
}

// lint is the gate for lint findings of severity error; it returns all.
func lint(c *Candidate) ([]policy.Finding, *gateResult) {
	own := slices.DeleteFunc(slices.Clone(policy.Lint(c.Set)), func(f policy.Finding) bool { return !strings.HasPrefix(f.File, c.Source+"/") })
	own = c.repositoryPaths(own)
	if e := firstError(own); e != "" {
		return own, rejection(Lint, "Lint", "commit %s: %s", c.Commit.Hash, e)
	}
	return own, nil
}

func (o Options) test(ctx context.Context, c Candidate) ([]policy.Finding, *gateResult) {
	findings, err := o.Test(ctx, c)
	findings = slices.Clone(findings) // owned by the caller
	for i, f := range findings {
		if f.File != "" {
			findings[i].File = path.Join(c.Commit.Path, f.File)
		}
	}
	if err != nil {
		v := rejection(Test, "NotRun", "the tests of commit %s could not be run: %s", c.Commit.Hash, shorten(err.Error()))
		v.retriable, v.inconclusive = true, true
		return findings, v
	}
	if e := firstError(findings); e != "" {
		return findings, rejection(Test, "Test", "a test of commit %s fails: %s", c.Commit.Hash, e)
	}
	return findings, nil
}

// diff is the gate for commits that change too many verdicts. The difference is computed
// and reported without a limit, too.
func (o Options) diff(ctx context.Context, s validSource, c Candidate, bounded bool) (*Difference, []policy.Finding, *gateResult) {
	if o.Diff == nil {
		return nil, nil, nil
	}
	bounded = bounded && s.MaxDiff > 0
	d, err := o.Diff(ctx, c)
	switch {
	case err != nil && !bounded:
		message := "the commit could not be compared with the active one: " + shorten(err.Error())
		return nil, []policy.Finding{{Code: "diff", Severity: policy.SeverityWarning, Message: message}}, nil
	case err != nil:
		v := rejection(Diff, "NotTold", "commit %s could not be compared with the active one: %s", c.Commit.Hash, shorten(err.Error()))
		v.retriable, v.inconclusive = true, true
		return nil, nil, v
	case bounded && d.Total() > s.MaxDiff && !o.Approved(c.Source, c.Commit.Hash):
		v := rejection(Diff, ReasonTooWide, "commit %s changes %d verdicts, but at most %d are allowed", c.Commit.Hash, d.Total(), s.MaxDiff)
		v.retriable = true // the fleet changes, too
		return &d, nil, v
	}
	return &d, nil, nil
}

// firstError returns the first finding of severity error, "" if there is none.
func firstError(list []policy.Finding) string {
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

// limitFindings returns errors first, within the limits of a status.
func limitFindings(list []policy.Finding) []policy.Finding {
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
	return clip.Text(s, maxMessage)
}
