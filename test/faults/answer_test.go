package faults

import (
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/test/kube"
)

// throughGate has the way to the first member lead through its gate from now on.
func (r *rig) throughGate(answer func(http.ResponseWriter, *http.Request) bool) {
	m := r.members[0]
	m.gated = true
	m.gate.set(answer, nil)
	m.Proxy.SetTargets(m.gate.listener.Addr().String())
	m.Proxy.Reset()
}

// stormOf is a server that refuses.
func stormOf(name string, short bool, answer func(http.ResponseWriter, *http.Request) bool) fault {
	return fault{
		name: name, short: short, hold: 10 * time.Second, brief: time.Second,
		inject: func(r *rig) error {
			r.throughGate(answer)
			return nil
		},
		during: func(r *rig) error {
			return r.until("a request to be refused", func() bool { return r.members[0].gate.refused() > 0 })
		},
		heal: func(r *rig) error {
			r.members[0].gate.set(nil, nil)
			return nil
		},
	}
}

// answerFaults are of what a member's server answers, and of whom it trusts.
var answerFaults = []fault{
	stormOf("429 storm, Retry-After 1", true, storm(http.StatusTooManyRequests, "TooManyRequests", "too many requests, please try again later", 1, everything)),
	stormOf("503 storm, Retry-After 1", false, storm(http.StatusServiceUnavailable, "ServiceUnavailable", "apiserver is shutting down", 1, everything)),
	stormOf("500 storm", false, storm(http.StatusInternalServerError, "InternalError", "etcdserver: request timed out", 0, everything)),
	stormOf("504 storm", false, storm(http.StatusGatewayTimeout, "Timeout", "request did not complete within the allotted timeout", 0, everything)),
	stormOf("watch cache not ready", false, storm(http.StatusTooManyRequests, "TooManyRequests", "storage is (re)initializing", 1, objects)),
	{
		name: "TLS certificate rotated", hold: 5 * time.Second, brief: time.Second,
		inject: func(r *rig) error { return r.members[0].RotateServing() },
		heal: func(r *rig) error {
			m := r.members[0]
			if err := r.untilErr(m.presentsFile); err != nil {
				return err
			}
			m.Proxy.Reset()
			return nil
		},
	},
	{
		name: "TLS authority rotated", hold: 10 * time.Second, brief: time.Second,
		inject: func(r *rig) error {
			crt, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
			if err != nil {
				return err
			}
			pair, err := tls.X509KeyPair(crt, key)
			if err != nil {
				return err
			}
			m := r.members[0]
			m.gate.present(pair)
			m.authority = crt
			r.throughGate(nil)
			return nil
		},
		heal: func(r *rig) error {
			m := r.members[0]
			config, err := clientcmd.Load(m.KubeconfigWith(m.cred))
			if err != nil {
				return err
			}
			for _, c := range config.Clusters {
				c.CertificateAuthorityData = m.authority
			}
			kubeconfig, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			return r.setKubeconfig(m, kubeconfig)
		},
	},
	{
		name: "token revoked (401) and rotated", hold: 10 * time.Second, brief: time.Second,
		inject: func(r *rig) error {
			m := r.members[0]
			if err := r.useToken(m); err != nil {
				return err
			}
			if err := r.untilErr(func() error { return r.exact(r.t.Context()) }); err != nil {
				return err
			}
			err := m.Client().CoreV1().ServiceAccounts("default").Delete(r.t.Context(), user, metav1.DeleteOptions{})
			m.Proxy.Reset() // a watch that is open goes on
			return err
		},
		during: func(r *rig) error {
			return r.untilErr(func() error {
				known, err := r.known(r.t.Context())
				if m := known[r.members[0].name]; err == nil && m.State == "Connected" {
					err = errors.New("the member is still connected")
				}
				return err
			})
		},
		heal: func(r *rig) error { return r.useToken(r.members[0]) },
	},
}

const tokenRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: federator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: federator, namespace: default}]
`

// useToken has federator reach the member by a service account's token, which is made.
func (r *rig) useToken(m *member) error {
	if err := m.Apply(r.t.Context(), []byte(tokenRights)); err != nil {
		return err
	}
	token, err := m.IssueToken(r.t.Context(), "default", user, time.Hour)
	if err != nil {
		return err
	}
	return r.setKubeconfig(m, m.KubeconfigWith(token))
}

// setKubeconfig changes how federator reaches a member, until restore.
func (r *rig) setKubeconfig(m *member, kubeconfig []byte) error {
	m.rotated = true
	return r.hub.SetKubeconfig(r.t.Context(), "fleet", m.plain(), kubeconfig)
}

// presentsFile returns an error while the API server identifies itself by an older certificate than
// that of its file.
func (m *member) presentsFile() error {
	file, _ := m.ServingFiles()
	want, err := certutil.CertsFromFile(file)
	if err != nil {
		return err
	}
	conn, err := tls.Dial("tcp", m.APIServerAddress(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	defer conn.Close()
	if !conn.ConnectionState().PeerCertificates[0].Equal(want[0]) {
		return errors.New("the API server presents the old certificate")
	}
	return nil
}

// untilErr waits until a check passes.
func (r *rig) untilErr(check func() error) error { return kube.Until(r.t.Context(), patience, check) }

// until waits for a condition.
func (r *rig) until(what string, met func() bool) error {
	return r.untilErr(func() error {
		if !met() {
			return errors.New(what + ": not met")
		}
		return nil
	})
}
