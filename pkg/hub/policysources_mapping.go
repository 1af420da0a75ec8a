package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/externaldocs"
	"federator.dev/federator/pkg/hub/internal/sourcerollout"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
)

// secretName is the namespace and name of a Secret.
type secretName struct{ namespace, name string }

func (n secretName) String() string { return n.namespace + "/" + n.name }

func secretNameOf(r v1alpha1.SecretReference) secretName { return secretName{r.Namespace, r.Name} }

// secretsOf returns the Secrets that a PolicySource refers to.
func secretsOf(ps *v1alpha1.PolicySource) []secretName {
	var out []secretName
	if r := ps.Spec.SecretRef; r != nil {
		out = append(out, secretNameOf(*r))
	}
	if v := ps.Spec.Verification; v != nil {
		out = append(out, secretNameOf(v.SecretRef))
	}
	return out
}

// problem is what is wrong with a PolicySource, found before its repository is fetched.
type problem struct{ reason, message string }

// toSource converts a PolicySource, whose commits roll out or not. If there is a problem, its
// repository must not be fetched.
func toSource(ps *v1alpha1.PolicySource, rolls bool, secret func(secretName) (map[string][]byte, problem)) (policysource.Source, problem) {
	spec := &ps.Spec
	out := policysource.Source{
		Name: ps.Name, URL: spec.URL, Ref: toRef(spec.Ref), Path: spec.Path, Generation: ps.Generation,
		Interval: durationOr(spec.Interval, 0), Limits: policysource.Limits{Timeout: durationOr(spec.Timeout, time.Minute)}, Rollout: rolls,
	}
	if r := ps.Status.Rollout; r != nil {
		switch hash := string(r.Commit); r.Phase {
		case v1alpha1.RolloutPromoted:
			out.Promoted, out.Begun = hash, hash
		case v1alpha1.RolloutTakenBack:
			out.TakenBack, out.TakenBackMessage = hash, r.Message
		default:
			out.Begun = hash
		}
	}
	if spec.MaxDiff != nil {
		out.MaxDiff = int(*spec.MaxDiff)
	}
	if c := ps.Status.ActiveCommit; c != nil {
		out.LastGood, out.Owned = string(c.Hash), ps.Status.Packages
	}
	if _, err := toCeiling(ps); err != nil {
		return out, problem{"Invalid", err.Error()}
	}
	if spec.SecretRef != nil {
		data, bad := secret(secretNameOf(*spec.SecretRef))
		if bad.reason == "" {
			out.Auth, bad = toAuth(secretNameOf(*spec.SecretRef), data)
		}
		if bad.reason != "" {
			return out, bad
		}
	}
	if v := spec.Verification; v != nil {
		data, bad := secret(secretNameOf(v.SecretRef))
		if bad.reason == "" {
			out.Verify, bad = toKeys(v, data)
		}
		if bad.reason != "" {
			return out, bad
		}
	}
	return out, problem{}
}

func toRef(r *v1alpha1.GitRef) string {
	switch {
	case r == nil:
		return ""
	case r.Branch != "":
		return "refs/heads/" + r.Branch
	case r.Tag != "":
		return "refs/tags/" + r.Tag
	case r.Commit != "":
		return string(r.Commit)
	}
	return r.Name
}

// toAuth returns the credentials in a Secret. Package policysource checks that they fit the URL.
func toAuth(from secretName, data map[string][]byte) (policysource.Auth, problem) {
	line := func(key string) policysource.Secret { // without a trailing newline of editors and echo
		return policysource.Secret(strings.TrimRight(string(data[key]), "\r\n"))
	}
	found := false
	for _, key := range []string{
		v1alpha1.UsernameKey, v1alpha1.PasswordKey, v1alpha1.TokenKey, v1alpha1.IdentityKey, v1alpha1.PassphraseKey, v1alpha1.KnownHostsKey, v1alpha1.CAKey,
	} {
		found = found || len(data[key]) > 0
	}
	if !found {
		return policysource.Auth{}, problem{"SecretInvalid", fmt.Sprintf("Secret %s contains no credentials: none of %s, %s, %s and %s",
			from, v1alpha1.UsernameKey, v1alpha1.TokenKey, v1alpha1.IdentityKey, v1alpha1.CAKey)}
	}
	return policysource.Auth{
		Username: strings.TrimRight(string(data[v1alpha1.UsernameKey]), "\r\n"), Password: line(v1alpha1.PasswordKey), Token: line(v1alpha1.TokenKey),
		CA: data[v1alpha1.CAKey], Key: policysource.Secret(data[v1alpha1.IdentityKey]), Passphrase: line(v1alpha1.PassphraseKey),
		KnownHosts: data[v1alpha1.KnownHostsKey],
	}, problem{}
}

// toKeys returns the trusted keys in a Secret. There is at least one: without keys no
// signature would be required.
func toKeys(v *v1alpha1.Verification, data map[string][]byte) (policysource.Keys, problem) {
	var out policysource.Keys
	if v.Mode != v1alpha1.VerifyPGP {
		out.AllowedSigners = bytes.TrimSpace(data[v1alpha1.AllowedSignersKey])
	}
	if v.Mode != v1alpha1.VerifySSH {
		out.PGP = bytes.TrimSpace(data[v1alpha1.KeyringKey])
	}
	if !out.Required() {
		return out, problem{"SecretInvalid", fmt.Sprintf("Secret %s contains no public keys to verify signatures: set %s or %s, depending on spec.verification.mode",
			secretNameOf(v.SecretRef), v1alpha1.AllowedSignersKey, v1alpha1.KeyringKey)}
	}
	return out, problem{}
}

// toCeiling returns what a PolicySource allows. What is not specified is not allowed, and
// after an error nothing is.
func toCeiling(ps *v1alpha1.PolicySource) (enforce.Ceiling, error) {
	c := &ps.Spec.Ceiling
	out := enforce.Ceiling{
		Mode: policy.Mode(c.MaxMode), Members: ToMemberSelector(c.Members), Namespaces: toStrings(c.Namespaces),
		Force: c.Force, ActAs: toStrings(c.ActAs), OverrideGitOps: c.GitOps == v1alpha1.OverrideGitOps, IgnoreOptOut: c.OptOut == v1alpha1.IgnoreOptOut,
		Version: ceilingVersion(ps),
	}
	if out.Mode == "" {
		out.Mode = policy.Observe
	}
	for _, a := range c.Actions {
		out.Actions = append(out.Actions, enforce.AllowedAction{Verbs: toStrings(a.Verbs), Kinds: toStrings(a.Kinds)})
	}
	if l := c.Limits; l != nil {
		out.Limits = toLimits(v1alpha1.Limits{
			Window: l.Window, MaxAffected: v1alpha1.MaxAffected{Policy: l.Policy, Member: l.Member, Fleet: l.Fleet}, ActionsPerMinute: l.ActionsPerMinute,
		})
	}
	out.Waves = toWaves(c.Waves)
	var err error
	if out.Window, err = toWindow(c.Window); err == nil {
		err = out.Validate()
	}
	if err != nil {
		return enforce.Ceiling{Mode: policy.Observe, Version: out.Version}, fmt.Errorf("spec.ceiling: %w", err)
	}
	return out, nil
}

// ceilingVersion returns what a ceiling is named by: another one, or that of a PolicySource
// that was made again, has another name. Whom policies may notify limits no writes.
func ceilingVersion(ps *v1alpha1.PolicySource) string {
	ceiling := ps.Spec.Ceiling
	ceiling.Notifications = nil
	text, err := json.Marshal([]any{ps.UID, &ceiling})
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// MayNotify returns which Notifications a FleetPolicy may name, and why no others: those of the ceiling that its source has on the
// hub now. Its source is the one that must provide its package, or the one that does; any may be named where that is built in.
func (s *PolicySources) MayNotify(fp *v1alpha1.FleetPolicy) (allowed []string, why string) {
	source := fp.Spec.Source
	if source == "" {
		var builtIn bool
		if source, builtIn = s.sourceOf(fp.Spec.Package); builtIn {
			return []string{v1alpha1.AllNotifications}, ""
		}
	}
	if source == "" {
		return nil, fmt.Sprintf("no active package is named %q", fp.Spec.Package)
	}
	ps := s.source(source)
	if ps == nil {
		return nil, fmt.Sprintf("PolicySource %q does not exist", source)
	}
	return ps.Spec.Ceiling.Notifications, fmt.Sprintf("not allowed by spec.ceiling.notifications of PolicySource %q", source)
}

// sourceOf returns the PolicySource of a package, "" if there is none, and whether the package is built into federator. After a
// restart its status says of which one it was, before the package is active.
func (s *PolicySources) sourceOf(pkg string) (source string, builtIn bool) {
	set := s.opts.Manager.State().Beside
	p := set.Package(pkg)
	if p == nil {
		p = set.Package(set.Candidate(pkg))
	}
	switch {
	case p == nil:
	case slices.Contains(s.opts.ReservedNames, p.Source):
		return "", true
	default:
		return p.Source, false
	}
	for _, ps := range s.list() {
		if slices.Contains(ps.Status.Packages, pkg) {
			return ps.Name, false
		}
	}
	return "", false
}

// toCommit converts a commit. If it is the old one, it keeps its time.
func toCommit(c policysource.Commit, since time.Time, old *v1alpha1.Commit) *v1alpha1.Commit {
	out := &v1alpha1.Commit{
		Hash: v1alpha1.CommitHash(c.Hash), Ref: clip.Text(c.Ref, 255), Path: clip.Text(c.Path, maxText), Since: toSeconds(&metav1.Time{Time: since}),
		Author: clip.Text(c.Author, maxName), Signer: clip.Text(c.Signer, maxName),
	}
	if y := c.Time.UTC().Year(); !c.Time.IsZero() && y > 0 && y < 10_000 { // git allows any number, RFC 3339 does not
		out.Time = toSeconds(&metav1.Time{Time: c.Time})
	}
	if old != nil && old.Hash == out.Hash && old.Since != nil {
		out.Since = old.Since
	}
	return out
}

// toDiff returns what the newest commit changes. A commit that was active before a
// restart keeps its diff of that time.
func toDiff(ps *v1alpha1.PolicySource, st policysource.Status, old *v1alpha1.PolicySourceStatus) *v1alpha1.Diff {
	if st.Newest == nil {
		return old.LastDiff
	}
	hash := v1alpha1.CommitHash(st.Newest.Hash)
	recorded := old.LastDiff != nil && old.LastDiff.Commit == hash
	switch {
	case recorded && (st.Diff == nil || old.ActiveCommit != nil && old.ActiveCommit.Hash == hash):
		return old.LastDiff
	case st.Diff == nil:
		return nil
	}
	out := &v1alpha1.Diff{
		Commit: hash, Appeared: int64(st.Diff.Appeared), Cleared: int64(st.Diff.Cleared), Changed: int64(st.Diff.Changed), Unknown: int64(st.Diff.Unknown), Enforcement: int64(st.Diff.Enforcement),
	}
	if ps.Spec.MaxDiff != nil {
		out.Allowed = int64(*ps.Spec.MaxDiff)
	}
	return out
}

// documentsReplaced is closed when something else is known of external documents; nil without any.
func (s *PolicySources) documentsReplaced() <-chan struct{} {
	if s.opts.External == nil {
		return nil
	}
	return s.opts.External.State().Replaced()
}

// documentSecrets returns the Secrets that external documents of a PolicySource refer to.
func (s *PolicySources) documentSecrets(ps *v1alpha1.PolicySource) (names []secretName) {
	for _, name := range externaldocs.SecretsOf(ps) {
		names = append(names, secretName{s.opts.Namespace, name})
	}
	return names
}

// configureDocuments says which external documents there are, if that has changed.
func (s *PolicySources) configureDocuments(list []*v1alpha1.PolicySource) {
	if s.opts.External == nil {
		return
	}
	sources := []externaldata.Source{}
	for _, ps := range list {
		if len(ps.Spec.External) == 0 || slices.Contains(s.opts.ReservedNames, ps.Name) {
			continue
		}
		sources = append(sources, externaldocs.ToSource(ps, func(name string) (map[string][]byte, string, bool) {
			data, bad := s.secrets.get(secretName{s.opts.Namespace, name})
			return data, bad.message, bad.reason == secretPending
		}))
	}
	if s.documents != nil && reflect.DeepEqual(s.documents, sources) {
		return
	}
	if err := s.opts.External.SetSources(sources); err != nil {
		s.opts.Logger.Error("configuring the external documents failed", "error", err)
		return
	}
	s.documents = sources
}

// syncDocuments has the external documents of a source read now.
func (s *PolicySources) syncDocuments(source string) {
	if s.opts.External != nil {
		s.opts.External.Sync(source)
	}
}

// unknownDocuments returns how many external documents of a source are not known.
func (s *PolicySources) unknownDocuments(source string) (n int) {
	if s.opts.External == nil {
		return 0
	}
	for _, d := range s.opts.External.State().Status[source] {
		if !d.Known {
			n++
		}
	}
	return n
}

// addDocuments adds what is known of the external documents of a PolicySource to its status.
func (s *PolicySources) addDocuments(next *v1alpha1.PolicySourceStatus, ps *v1alpha1.PolicySource) {
	if s.opts.External == nil {
		return
	}
	list := s.opts.External.State().Status[ps.Name]
	next.External = externaldocs.ToStatus(list, ps.Status.External)
	if c, some := externaldocs.Condition(list); some {
		setSourceCondition(next, ps, c)
	} else {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ExternalData)
	}
}

// toFindings converts findings within the limits of a status, errors first.
func toFindings(list []policy.Finding) []v1alpha1.Finding {
	var errs, rest []v1alpha1.Finding
	for _, f := range list {
		out := v1alpha1.Finding{
			File: clip.Text(f.File, maxText), Line: int32(max(f.Line, 0)), Column: int32(max(f.Col, 0)), Severity: v1alpha1.SeverityWarning,
			Code: clip.Text(f.Code, maxCode), Message: clip.Text(f.Message, maxText),
		}
		if f.Severity == policy.SeverityError {
			out.Severity = v1alpha1.SeverityError
			errs = append(errs, out)
			continue
		}
		rest = append(rest, out)
	}
	out := append(errs, rest...)
	return out[:min(len(out), maxFindings)]
}

// seenEvidence is the evidence of a commit at a time, as this process has it.
type seenEvidence struct {
	at time.Time
	of evidence.Commit
}

// evidenceOf returns what this process finds of what has no FleetPolicy, counted once a second at most.
func (s *PolicySources) evidenceOf(source string, c *policysource.RollingOut, state *policysource.State, list []*v1alpha1.FleetPolicy, now time.Time) evidence.Commit {
	if s.opts.State == nil {
		return evidence.Commit{}
	}
	active := state.Policies[source].Commit // the same commits have other policies in another directory
	is, of := s.evidence[source], fmt.Sprintf("%s/%s %q %q", active.Hash, c.Commit.Hash, active.Path, c.Commit.Path)
	if is.of.Of != of || now.Sub(is.at) >= statusInterval {
		is = seenEvidence{at: now, of: sourcerollout.EvidenceOf(s.opts.State(), state.Beside, c.Packages, list)}
		is.of.Of = of
		s.evidence[source] = is
	}
	return is.of
}

// compare has the evidence renewed on the commits that roll out, for whichever process leads.
func (s *PolicySources) compare(list []*v1alpha1.PolicySource, state *policysource.State) {
	said, policies := map[string]evidence.Commit{}, s.fleetPolicies()
	for _, ps := range list {
		if c, ok := state.Candidates[ps.Name]; ok {
			said[ps.Name] = s.evidenceOf(ps.Name, &c, state, policies, time.Now())
		}
	}
	s.said.Store(&said)
}

// Evidence returns what this process finds of the commits that roll out, by source; nil before it has compared any. It may
// be called by any goroutine.
func (s *PolicySources) Evidence() map[string]evidence.Commit {
	if said := s.said.Load(); said != nil {
		return *said
	}
	return nil
}
