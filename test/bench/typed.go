package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// typedInformerSync has a stock typed informer follow the pods of one member through
// the query API, in protobuf and in JSON.
func typedInformerSync(ctx context.Context, b *bench) (rows []row, err error) {
	pods := b.n(10_000)
	control, err := kube.Start(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Stop()) }()
	members, stop, err := b.simfleet(ctx, "--members", "1", "--pods", strconv.Itoa(pods), "--nodes", "10")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ours, server, stopServer, err := b.queryServer(ctx, control.Hub, members, pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	config := rest.CopyConfig(ours)
	config.Host += "/fleet" // of one member: names do not collide
	text, err := kubeconfigOf(config)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(b.dir, "fleet.kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		return nil, err
	}
	seconds, client, servers := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	kinds := []string{"sync-typed", "sync-typed-json"}
	for range 5 {
		for _, kind := range kinds {
			before, err := cpuOf(server.Pid)
			if err != nil {
				return nil, err
			}
			got := figures{}
			if err := b.child(ctx, kind, &got, kubeconfig, strconv.Itoa(pods)); err != nil {
				return nil, err
			}
			after, err := cpuOf(server.Pid)
			if err != nil {
				return nil, err
			}
			seconds[kind], client[kind] = append(seconds[kind], got["seconds"]), append(client[kind], got["cpu"])
			servers[kind] = append(servers[kind], after-before)
		}
	}
	binary, json := kinds[0], kinds[1]
	note := fmt.Sprintf("%d pods, protobuf beside JSON: synced in %.2f s, %.2f s; server CPU %.2f s, %.2f s; goal half of JSON's client CPU",
		pods, median(seconds[binary]), median(seconds[json]), median(servers[binary]), median(servers[json]))
	return []row{lower("query/typed_informer_sync", "client CPU-s", median(client[binary]), median(client[json]), note)}, nil
}

// cpuOf returns the CPU seconds that a process has used.
func cpuOf(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	const user, system, perSecond = 11, 12, 100 // proc(5), after the name; USER_HZ
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	sum := 0.0
	for _, i := range []int{user, system} {
		n, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum / perSecond, nil
}
