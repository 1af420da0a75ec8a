package hub

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// secretName is a Secret's namespace and name.
type secretName struct{ namespace, name string }

func (n secretName) String() string { return n.namespace + "/" + n.name }

func nameOf(r v1alpha1.SecretReference) secretName { return secretName{r.Namespace, r.Name} }

// secretsOf are the Secrets that a PolicySource names.
func secretsOf(ps *v1alpha1.PolicySource) []secretName {
	var out []secretName
	if r := ps.Spec.SecretRef; r != nil {
		out = append(out, nameOf(*r))
	}
	if v := ps.Spec.Verification; v != nil {
		out = append(out, nameOf(v.SecretRef))
	}
	return out
}

// fault says what is wrong with a PolicySource, before its repository is asked.
type fault struct{ reason, message string }

// sourceOf is a PolicySource as policysource takes it. Where there is a fault, it is not
// to be followed.
func sourceOf(ps *v1alpha1.PolicySource, secret func(secretName) (map[string][]byte, fault)) (policysource.Source, fault) {
	spec := &ps.Spec
	out := policysource.Source{
		Name: ps.Name, URL: spec.URL, Ref: refOf(spec.Ref), Path: spec.Path, Generation: ps.Generation,
		Interval: duration(spec.Interval, 0), Limits: policysource.Limits{Timeout: duration(spec.Timeout, time.Minute)},
	}
	if spec.MaxDiff != nil {
		out.MaxDiff = int(*spec.MaxDiff)
	}
	if c := ps.Status.ActiveCommit; c != nil {
		out.LastGood = string(c.Hash)
	}
	if spec.SecretRef != nil {
		data, bad := secret(nameOf(*spec.SecretRef))
		if bad.reason == "" {
			out.Auth, bad = authOf(nameOf(*spec.SecretRef), data)
		}
		if bad.reason != "" {
			return out, bad
		}
	}
	if v := spec.Verification; v != nil {
		data, bad := secret(nameOf(v.SecretRef))
		if bad.reason == "" {
			out.Verify, bad = keysOf(v, data)
		}
		if bad.reason != "" {
			return out, bad
		}
	}
	return out, fault{}
}

func refOf(r *v1alpha1.GitRef) string {
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

// authOf is how to log in. Which of it fits the URL is policysource's to say.
func authOf(from secretName, data map[string][]byte) (policysource.Auth, fault) {
	line := func(key string) policysource.Secret { // what editors and echo end files with is no part of it
		return policysource.Secret(strings.TrimRight(string(data[key]), "\r\n"))
	}
	found := false
	for _, key := range []string{
		v1alpha1.UsernameKey, v1alpha1.PasswordKey, v1alpha1.TokenKey, v1alpha1.IdentityKey, v1alpha1.PassphraseKey, v1alpha1.KnownHostsKey, v1alpha1.CAKey,
	} {
		found = found || len(data[key]) > 0
	}
	if !found {
		return policysource.Auth{}, fault{"SecretInvalid", fmt.Sprintf("Secret %s has nothing to log in with: no %s, %s, %s or %s",
			from, v1alpha1.UsernameKey, v1alpha1.TokenKey, v1alpha1.IdentityKey, v1alpha1.CAKey)}
	}
	return policysource.Auth{
		Username: strings.TrimRight(string(data[v1alpha1.UsernameKey]), "\r\n"), Password: line(v1alpha1.PasswordKey), Token: line(v1alpha1.TokenKey),
		CA: data[v1alpha1.CAKey], Key: policysource.Secret(data[v1alpha1.IdentityKey]), Passphrase: line(v1alpha1.PassphraseKey),
		KnownHosts: data[v1alpha1.KnownHostsKey],
	}, fault{}
}

// keysOf are whose signatures are trusted. There is always one: without keys no
// signature would be asked for.
func keysOf(v *v1alpha1.Verification, data map[string][]byte) (policysource.Keys, fault) {
	var out policysource.Keys
	if v.Mode != v1alpha1.VerifyPGP {
		out.AllowedSigners = bytes.TrimSpace(data[v1alpha1.AllowedSignersKey])
	}
	if v.Mode != v1alpha1.VerifySSH {
		out.PGP = bytes.TrimSpace(data[v1alpha1.KeyringKey])
	}
	if !out.Required() {
		return out, fault{"SecretInvalid", fmt.Sprintf("Secret %s has no keys to verify signatures with: %s or %s, as spec.verification.mode says",
			nameOf(v.SecretRef), v1alpha1.AllowedSignersKey, v1alpha1.KeyringKey)}
	}
	return out, fault{}
}

// ceilingOf is what a PolicySource allows. What it does not say is not allowed.
func ceilingOf(ps *v1alpha1.PolicySource) enforce.Ceiling {
	c := &ps.Spec.Ceiling
	out := enforce.Ceiling{Mode: policy.Mode(c.MaxMode), Members: members(c.Members), Namespaces: texts(c.Namespaces)}
	if out.Mode == "" {
		out.Mode = policy.Observe
	}
	for _, a := range c.Actions {
		out.Actions = append(out.Actions, enforce.AllowedAction{Verbs: texts(a.Verbs), Kinds: texts(a.Kinds)})
	}
	return out
}
