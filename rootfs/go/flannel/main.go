// The CNI plugin of flannel. flanneld writes the node's subnets to a file. This plugin calls another one, by default
// `bridge`, which connects pods with addresses of these subnets.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	bv "github.com/containernetworking/plugins/pkg/utils/buildversion"
)

const (
	defaultSubnetFile = "/run/flannel/subnet.env"
	defaultDataDir    = "/var/lib/cni/flannel"
)

// conf is the configuration of this plugin.
type conf struct {
	types.NetConf
	SubnetFile string         `json:"subnetFile"`
	DataDir    string         `json:"dataDir"`
	Delegate   map[string]any `json:"delegate"`
}

// lease is the content of flanneld's subnet file.
type lease struct {
	networks []string
	subnets  []string
	mtu      int
	ipMasq   bool
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add:   cmdAdd,
		Check: cmdCheck,
		Del:   cmdDel,
	}, version.All, bv.BuildString("flannel"))
}

func load(data []byte) (*conf, error) {
	loaded := &conf{SubnetFile: defaultSubnetFile, DataDir: defaultDataDir}
	if err := json.Unmarshal(data, loaded); err != nil {
		return nil, fmt.Errorf("reading the configuration of flannel: %w", err)
	}
	return loaded, nil
}

// readLease reads lines of NAME=VALUE. It ignores unknown names.
func readLease(path string) (*lease, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("flanneld has not written the node's subnets yet: %w", err)
	}
	found := &lease{}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK":
			for _, network := range strings.Split(value, ",") {
				err = errors.Join(err, add(&found.networks, network))
			}
		case "FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET":
			err = errors.Join(err, add(&found.subnets, value))
		case "FLANNEL_MTU":
			var wrong error
			found.mtu, wrong = strconv.Atoi(value)
			err = errors.Join(err, wrong)
		case "FLANNEL_IPMASQ":
			found.ipMasq = value == "true"
		}
	}
	if err == nil && (len(found.subnets) == 0 || len(found.networks) == 0 || found.mtu <= 0) {
		err = errors.New("a network, a subnet or the MTU is absent")
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return found, nil
}

// add appends a network without the bits of a host: flanneld writes the gateway's address.
func add(list *[]string, text string) error {
	if text == "" {
		return nil
	}
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		return err
	}
	*list = append(*list, network.String())
	return nil
}

// delegate is the configuration of the plugin that does the work.
func (c *conf) delegate(found *lease) map[string]any {
	with := c.Delegate
	if with == nil {
		with = map[string]any{}
	}
	usual := func(name string, value any) {
		if _, said := with[name]; !said {
			with[name] = value
		}
	}
	usual("type", "bridge")
	// Either flanneld hides the pods' addresses from other networks, or the bridge does.
	usual("ipMasq", !found.ipMasq)
	usual("mtu", found.mtu)
	if with["type"] == "bridge" {
		usual("isGateway", true)
	}
	with["name"] = c.Name
	with["cniVersion"] = c.CNIVersion
	ranges, routes := [][]map[string]any{}, []map[string]any{}
	for _, subnet := range found.subnets {
		ranges = append(ranges, []map[string]any{{"subnet": subnet}})
	}
	for _, network := range found.networks {
		routes = append(routes, map[string]any{"dst": network})
	}
	with["ipam"] = map[string]any{"type": "host-local", "ranges": ranges, "routes": routes}
	return with
}

// place is where the delegate's configuration is kept for the pod's end, when flanneld may have another subnet. The
// container's id has been checked: it is no path.
func (c *conf) place(args *skel.CmdArgs) string {
	return filepath.Join(c.DataDir, args.ContainerID)
}

// kind is the plugin that a configuration is for.
func kind(with map[string]any) (string, error) {
	name, isText := with["type"].(string)
	if !isText || name == "" || name == "flannel" {
		return "", fmt.Errorf("delegate.type is %v: name another plugin", with["type"])
	}
	return name, nil
}

func cmdAdd(args *skel.CmdArgs) error {
	loaded, err := load(args.StdinData)
	if err != nil {
		return err
	}
	found, err := readLease(loaded.SubnetFile)
	if err != nil {
		return err
	}
	with := loaded.delegate(found)
	plugin, err := kind(with)
	if err != nil {
		return err
	}
	data, err := json.Marshal(with)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(loaded.DataDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(loaded.place(args), data, 0o600); err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(context.Background(), plugin, data, nil)
	if err != nil {
		return fmt.Errorf("the plugin %s: %w", plugin, err)
	}
	return types.PrintResult(result, loaded.CNIVersion)
}

// kept returns the configuration that cmdAdd kept, or nothing.
func (c *conf) kept(args *skel.CmdArgs) (string, map[string]any, error) {
	data, err := os.ReadFile(c.place(args))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	with := map[string]any{}
	if err := json.Unmarshal(data, &with); err != nil {
		return "", nil, fmt.Errorf("reading %s: %w", c.place(args), err)
	}
	plugin, err := kind(with)
	return plugin, with, err
}

func cmdCheck(args *skel.CmdArgs) error {
	loaded, err := load(args.StdinData)
	if err != nil {
		return err
	}
	plugin, with, err := loaded.kept(args)
	if err != nil {
		return err
	}
	if with == nil {
		return fmt.Errorf("%s is absent: the container was not added", loaded.place(args))
	}
	with["prevResult"] = loaded.RawPrevResult
	data, err := json.Marshal(with)
	if err != nil {
		return err
	}
	return invoke.DelegateCheck(context.Background(), plugin, data, nil)
}

func cmdDel(args *skel.CmdArgs) error {
	loaded, err := load(args.StdinData)
	if err != nil {
		return err
	}
	plugin, with, err := loaded.kept(args)
	// A container may be deleted twice, or before it was added.
	if err != nil || with == nil {
		return err
	}
	data, err := json.Marshal(with)
	if err != nil {
		return err
	}
	if err := invoke.DelegateDel(context.Background(), plugin, data, nil); err != nil {
		return fmt.Errorf("the plugin %s: %w", plugin, err)
	}
	return os.Remove(loaded.place(args))
}
