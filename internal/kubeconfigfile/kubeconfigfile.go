package kubeconfigfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Write writes a kubeconfig that only its owner can read, whatever the file's mode
// was before.
func Write(path string, config clientcmdapi.Config) error {
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return clientcmd.WriteToFile(config, path) // makes it with mode 0600
}

// FleetContext and FlatContext are the contexts of a local server's kubeconfig, over
// all members; federator kubeconfig adds one for each member, with a slash in its name.
const (
	FleetContext = "fleet"
	FlatContext  = "flat"
)

// AuthoritySuffix is appended to the name of a server's kubeconfig: the file with the CA of
// a certificate that the server generated.
const AuthoritySuffix = ".ca.crt"

// WriteAuthority writes a CA certificate (PEM), unless there is none.
func WriteAuthority(path string, pem []byte) error {
	if pem == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, pem, 0o600)
}

// WriteLocal writes a kubeconfig that leads to a server without a hub.
func WriteLocal(path, addr, token string, authority []byte) error {
	config := clientcmdapi.NewConfig()
	for name, path := range map[string]string{FleetContext: "/fleet", FlatContext: "/flat"} {
		config.Clusters[name] = &clientcmdapi.Cluster{
			Server: "https://" + addr + path, CertificateAuthorityData: authority,
			DisableCompression: true, // it is on this machine
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: FleetContext}
	}
	config.AuthInfos[FleetContext] = &clientcmdapi.AuthInfo{Token: token}
	config.CurrentContext = FleetContext
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return Write(path, *config)
}

// Path returns the path of a setting, or the default path.
func Path(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("query.kubeconfig: %w", err)
	}
	return filepath.Join(dir, "federator", "kubeconfig"), nil
}
