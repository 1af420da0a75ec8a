package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
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

// toSource converts a PolicySource. If there is a problem, its repository must not be
// fetched.
func toSource(ps *v1alpha1.PolicySource, secret func(secretName) (map[string][]byte, problem)) (policysource.Source, problem) {
	spec := &ps.Spec
	out := policysource.Source{
		Name: ps.Name, URL: spec.URL, Ref: toRef(spec.Ref), Path: spec.Path, Generation: ps.Generation,
		Interval: durationOr(spec.Interval, 0), Limits: policysource.Limits{Timeout: durationOr(spec.Timeout, time.Minute)},
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
		Mode: policy.Mode(c.MaxMode), Members: toMemberSelector(c.Members), Namespaces: toStrings(c.Namespaces),
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
// that was made again, has another name.
func ceilingVersion(ps *v1alpha1.PolicySource) string {
	text, err := json.Marshal([]any{ps.UID, &ps.Spec.Ceiling})
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
