package signature_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/pkg/policysource/internal/signature"
	"federator.dev/federator/test/git"
)

var (
	made = time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	now  = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

// envelope and blob are the formats of PROTOCOL.sshsig, as signers write them.
type envelope struct {
	Version                                         uint32
	PublicKey, Namespace, Reserved, Hash, Signature string
}

type blob struct{ Namespace, Reserved, Hash, Sum string }

// sshSigner signs as ssh-keygen -Y sign, or not quite.
type sshSigner struct {
	key             ssh.Signer
	namespace, hash string
	version         uint32
	algorithm       string // "" is the key's own
}

func (s sshSigner) sign(t *testing.T, payload []byte) []byte {
	t.Helper()
	var sum []byte
	switch s.hash {
	case "sha1":
		h := sha1.Sum(payload)
		sum = h[:]
	case "sha256":
		h := sha256.Sum256(payload)
		sum = h[:]
	default:
		h := sha512.Sum512(payload)
		sum = h[:]
	}
	data := append([]byte("SSHSIG"), ssh.Marshal(blob{s.namespace, "", s.hash, string(sum)})...)
	var sig *ssh.Signature
	var err error
	if as, ok := s.key.(ssh.AlgorithmSigner); ok && s.algorithm != "" {
		sig, err = as.SignWithAlgorithm(rand.Reader, data, s.algorithm)
	} else {
		sig, err = s.key.Sign(rand.Reader, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := envelope{s.version, string(s.key.PublicKey().Marshal()), s.namespace, "", s.hash, string(ssh.Marshal(*sig))}
	text := base64.StdEncoding.EncodeToString(append([]byte("SSHSIG"), ssh.Marshal(e)...))
	var out strings.Builder
	out.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for len(text) > 70 {
		out.WriteString(text[:70] + "\n")
		text = text[70:]
	}
	out.WriteString(text + "\n-----END SSH SIGNATURE-----\n")
	return []byte(out.String())
}

func sshKey(t *testing.T, key crypto.PrivateKey, err error) ssh.Signer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ed25519Key(t *testing.T) ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return sshKey(t, key, err)
}

func allow(prefix string, key ssh.Signer) string {
	return prefix + " " + string(ssh.MarshalAuthorizedKey(key.PublicKey()))
}

func TestVerifier_SSH(t *testing.T) {
	payload := []byte("tree 1\n\nmessage\n")
	ann, eve := ed25519Key(t), ed25519Key(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ecKey := sshKey(t, ec, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	weakKey := sshKey(t, weak, err)
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	rsaKey := sshKey(t, strong, err)
	good := sshSigner{ann, "git", "sha512", 1, ""}
	with := func(f func(*sshSigner)) []byte {
		s := good
		f(&s)
		return s.sign(t, payload)
	}
	trust := allow("ann@example.com", ann)
	signed := good.sign(t, payload)
	for name, c := range map[string]struct {
		allowed   string
		signature []byte
		want      error
		text      string // of the error, or of who signed
	}{
		"trusted":               {trust, signed, nil, "ann@example.com " + ssh.FingerprintSHA256(ann.PublicKey())},
		"with sha256":           {trust, with(func(s *sshSigner) { s.hash = "sha256" }), nil, "ann"},
		"ECDSA":                 {allow("ec", ecKey), with(func(s *sshSigner) { s.key = ecKey }), nil, "ec"},
		"RSA":                   {allow("r", rsaKey), with(func(s *sshSigner) { s.key, s.algorithm = rsaKey, ssh.KeyAlgoRSASHA512 }), nil, "r"},
		"among others":          {"# who may\n\n" + allow("eve", eve) + trust, signed, nil, "ann"},
		"in quotes":             {allow(`"ann smith, ann@*"`, ann), signed, nil, "ann smith"},
		"git's namespace":       {allow(`ann namespaces="file,git"`, ann), signed, nil, "ann"},
		"within its time":       {allow(`ann valid-after="20251231",valid-before="20270101Z"`, ann), signed, nil, "ann"},
		"expired, then renewed": {allow(`old valid-before="20260101"`, ann) + allow("new", ann), signed, nil, "new"},

		"unsigned":            {trust, nil, signature.ErrUnsigned, ""},
		"only blanks":         {trust, []byte(" \n"), signature.ErrUnsigned, ""},
		"another key":         {allow("eve", eve), signed, signature.ErrUntrusted, ssh.FingerprintSHA256(ann.PublicKey())},
		"another payload":     {trust, good.sign(t, []byte("tree 2\n\nmessage\n")), signature.ErrInvalid, "did not sign this"},
		"no namespace of git": {allow(`ann namespaces="file"`, ann), signed, signature.ErrUntrusted, "namespace"},
		"expired now":         {allow(`ann valid-before="20260301"`, ann), signed, signature.ErrExpired, "2026-03-01"},
		"expired when made":   {allow(`ann valid-before="20260101000001"`, ann), signed, signature.ErrExpired, ""},
		"not yet when made":   {allow(`ann valid-after="202601010001"`, ann), signed, signature.ErrExpired, "valid after"},
		"made for files":      {trust, with(func(s *sshSigner) { s.namespace = "file" }), signature.ErrInvalid, `"file"`},
		"SHA-1":               {trust, with(func(s *sshSigner) { s.hash = "sha1" }), signature.ErrInvalid, `"sha1"`},
		"version 2":           {trust, with(func(s *sshSigner) { s.version = 2 }), signature.ErrInvalid, "version is 2"},
		"RSA with SHA-1":      {allow("r", rsaKey), with(func(s *sshSigner) { s.key, s.algorithm = rsaKey, ssh.KeyAlgoRSA }), signature.ErrInvalid, "ssh-rsa"},
		"RSA of 1024 bits":    {trust, with(func(s *sshSigner) { s.key, s.algorithm = weakKey, ssh.KeyAlgoRSASHA512 }), signature.ErrInvalid, "2048"},
		"broken armor":        {trust, signed[:len(signed)-5], signature.ErrInvalid, "armor"},
		"broken base64":       {trust, bytes.Replace(signed, []byte("U1NI"), []byte("!!!!"), 1), signature.ErrInvalid, "base64"},
		"no signature in it":  {trust, []byte("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----"), signature.ErrInvalid, "format"},
		"of another kind":     {trust, []byte("-----BEGIN CMS-----"), signature.ErrInvalid, "neither"},
		"too long":            {trust, bytes.Repeat([]byte("x"), 1<<20), signature.ErrInvalid, "larger than"},
	} {
		v, err := signature.NewVerifier(signature.Keys{AllowedSigners: []byte(c.allowed)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		who, err := v.Verify(payload, c.signature, made, now)
		switch {
		case c.want == nil && (err != nil || !strings.Contains(who, c.text)):
			t.Errorf("%s: %q, %v", name, who, err)
		case c.want != nil && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || who != ""):
			t.Errorf("%s: %q, %v, want %v with %q", name, who, err, c.want, c.text)
		}
	}
}

func TestNewVerifier_RejectsInvalidKeys(t *testing.T) {
	ann := ed25519Key(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	weakKey := sshKey(t, weak, err)
	private, err := openpgp.NewEntity("Ann", "", "ann@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var armored bytes.Buffer
	w, err := armor.Encode(&armored, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(private.SerializePrivate(w, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys signature.Keys
		text string
	}{
		"none":           {signature.Keys{}, "none"},
		"only comments":  {signature.Keys{AllowedSigners: []byte("# nobody\n")}, "no key"},
		"no principals":  {signature.Keys{AllowedSigners: ssh.MarshalAuthorizedKey(ann.PublicKey())}, "line 1"},
		"no key":         {signature.Keys{AllowedSigners: []byte(allow("ann", ann) + "eve\n")}, "line 2"},
		"an authority":   {signature.Keys{AllowedSigners: []byte(allow("ann cert-authority", ann))}, "cert-authority"},
		"an odd time":    {signature.Keys{AllowedSigners: []byte(allow(`ann valid-before="tomorrow"`, ann))}, "tomorrow"},
		"an odd date":    {signature.Keys{AllowedSigners: []byte(allow(`ann valid-after="20261399"`, ann))}, "20261399"},
		"a weak key":     {signature.Keys{AllowedSigners: []byte(allow("ann", weakKey))}, "2048"},
		"no PGP":         {signature.Keys{PGP: []byte("hello")}, "no armored key"},
		"broken PGP":     {signature.Keys{PGP: []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n")}, "PGP"},
		"a private key":  {signature.Keys{PGP: armored.Bytes()}, "PGP"},
		"one of the two": {signature.Keys{AllowedSigners: []byte(allow("ann", ann)), PGP: []byte("x")}, "PGP"},
	} {
		if _, err := signature.NewVerifier(c.keys); !errors.Is(err, signature.ErrKeys) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", name, err, c.text)
		}
	}
}

func pgpKey(t *testing.T, name string, at time.Time, seconds uint32) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity(name, "", strings.ToLower(name)+"@example.com", &packet.Config{
		Time: func() time.Time { return at }, KeyLifetimeSecs: seconds, Algorithm: packet.PubKeyAlgoEdDSA,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func public(t *testing.T, entities ...*openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, e := range entities {
		w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Serialize(w), w.Close()); err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func TestVerifier_PGP(t *testing.T) {
	payload := []byte("tree 1\n\nmessage\n")
	born := made.Add(-time.Hour)
	ann, eve := pgpKey(t, "Ann", born, 0), pgpKey(t, "Eve", born, 0)
	brief := pgpKey(t, "Brief", born, 30*24*3600)
	gone := pgpKey(t, "Gone", born, 0)
	sign := func(e *openpgp.Entity, text []byte, hash crypto.Hash) []byte {
		var out bytes.Buffer
		err := openpgp.ArmoredDetachSign(&out, e, bytes.NewReader(text), &packet.Config{Time: func() time.Time { return made }, DefaultHash: hash})
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	goneSigned := sign(gone, payload, crypto.SHA512)
	if err := gone.RevokeKey(packet.KeyCompromised, "lost", &packet.Config{Time: func() time.Time { return made }}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys      []byte
		signature []byte
		want      error
		text      string
	}{
		"trusted":         {public(t, ann), sign(ann, payload, crypto.SHA512), nil, "Ann <ann@example.com> PGP:"},
		"of two keyrings": {public(t, eve, ann), sign(ann, payload, crypto.SHA256), nil, "Ann"},
		"another key":     {public(t, eve), sign(ann, payload, crypto.SHA512), signature.ErrUntrusted, "PGP:"},
		"another payload": {public(t, ann), sign(ann, []byte("tree 2"), crypto.SHA512), signature.ErrInvalid, "did not sign this"},
		"expired":         {public(t, brief), sign(brief, payload, crypto.SHA512), signature.ErrExpired, "PGP:"},
		"revoked":         {public(t, gone), goneSigned, signature.ErrRevoked, "PGP:"},
		"broken":          {public(t, ann), []byte("-----BEGIN PGP SIGNATURE-----\n\n!!\n"), signature.ErrInvalid, ""},
		"unsigned":        {public(t, ann), nil, signature.ErrUnsigned, ""},
		"an SSH one":      {public(t, ann), sshSigner{ed25519Key(t), "git", "sha512", 1, ""}.sign(t, payload), signature.ErrUntrusted, "SHA256:"},
	} {
		v, err := signature.NewVerifier(signature.Keys{PGP: c.keys})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		who, err := v.Verify(payload, c.signature, made, now)
		switch {
		case c.want == nil && (err != nil || !strings.Contains(who, c.text)):
			t.Errorf("%s: %q, %v", name, who, err)
		case c.want != nil && (!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %q, %v, want %v with %q", name, who, err, c.want, c.text)
		}
	}
}

// fetch reads the signed object of a repository's ref.
func fetch(t *testing.T, r *git.Repo, ref string) *checkout.Result {
	t.Helper()
	got, err := (&checkout.Client{AllowFile: true}).Fetch(t.Context(), checkout.Request{URL: "file://" + r.Dir, Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// checkSigned verifies signatures of real tools: of an unusual commit, and of a tag.
func checkSigned(t *testing.T, r *git.Repo, keys signature.Keys, who string) {
	t.Helper()
	v, err := signature.NewVerifier(keys)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"a.rego": "package a\n"}
	if _, err := r.Commit(files, "-S", "--message=Überschrift\n\n-----BEGIN SSH SIGNATURE-----\nnot one\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run("tag", "-s", "v1", "-m", "the first"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(files); err != nil {
		t.Fatal(err)
	}
	signed := fetch(t, r, "v1")
	if len(signed.Signed) != 2 || signed.Signed[0].Object != "commit" || signed.Signed[1].Object != "tag" {
		t.Fatalf("signed: %+v", signed.Signed)
	}
	later := time.Now().Add(time.Minute)
	for _, s := range signed.Signed {
		if got, err := v.Verify(s.Payload, s.Signature, s.When, later); err != nil || !strings.Contains(got, who) {
			t.Errorf("%s: %q, %v", s.Object, got, err)
		}
		other := bytes.Replace(s.Payload, []byte("\nauthor "), []byte("\nparent 0000000000000000000000000000000000000000\nauthor "), 1)
		other = bytes.Replace(other, []byte("the first"), []byte("the worst"), 1)
		if _, err := v.Verify(other, s.Signature, s.When, later); !errors.Is(err, signature.ErrInvalid) {
			t.Errorf("%s, changed: %v", s.Object, err)
		}
	}
	if got := fetch(t, r, "main"); len(got.Signed) != 0 {
		t.Errorf("unsigned: %+v", got.Signed)
	}
}

func TestVerifier_CommitsOfSSHKeygen(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed; TestVerifier_SSH signs without it")
	}
	r, err := git.Init(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	private, public, err := git.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"gpg.format", "ssh"}, {"user.signingkey", file}} {
		if _, err := r.Run("config", args[0], args[1]); err != nil {
			t.Fatal(err)
		}
	}
	checkSigned(t, r, signature.Keys{AllowedSigners: []byte("ann " + string(ssh.MarshalAuthorizedKey(public)))}, "ann SHA256:")
}

func TestVerifier_CommitsOfGPG(t *testing.T) {
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("gpg is not installed; TestVerifier_PGP signs without it")
	}
	// A short path: the agent's socket is below it.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	gpg := func(args ...string) []byte {
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback"}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Logf("%s", exit.Stderr)
			}
			t.Fatalf("gpg %v: %v", args, err)
		}
		return out
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // the agent that gpg started
		os.RemoveAll(home)
	})
	gpg("--quick-generate-key", "Ann <ann@example.com>", "ed25519", "sign", "never")
	r, err := git.Init(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.Env = []string{"GNUPGHOME=" + home}
	if _, err := r.Run("config", "user.signingkey", "ann@example.com"); err != nil {
		t.Fatal(err)
	}
	checkSigned(t, r, signature.Keys{PGP: gpg("--armor", "--export")}, "Ann <ann@example.com> PGP:")
}

func TestVerifier_SignatureOfOpenSSH(t *testing.T) {
	data, err := os.ReadFile("testdata/commit.txt")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := os.ReadFile("testdata/allowed_signers")
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Index(data, []byte("-----BEGIN SSH"))
	v, err := signature.NewVerifier(signature.Keys{AllowedSigners: signer})
	if err != nil {
		t.Fatal(err)
	}
	if who, err := v.Verify(data[:block], data[block:], made, now); err != nil || !strings.HasPrefix(who, "ann@example.com SHA256:") {
		t.Errorf("%q, %v", who, err)
	}
}

func FuzzVerify(f *testing.F) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		f.Fatal(err)
	}
	v, err := signature.NewVerifier(signature.Keys{AllowedSigners: []byte(allow("ann", s))})
	if err != nil {
		f.Fatal(err)
	}
	if data, err := os.ReadFile("testdata/commit.txt"); err == nil {
		f.Add(data[bytes.Index(data, []byte("-----BEGIN SSH")):])
	}
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PGP SIGNATURE", Bytes: []byte{0x88, 0x75, 4}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if who, err := v.Verify([]byte("payload"), data, made, now); err == nil {
			t.Errorf("signed by %s", who)
		}
	})
}
