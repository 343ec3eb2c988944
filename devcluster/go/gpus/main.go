// Command gpus is a device plugin for a node without cards: it advertises nvidia.com/gpu and hands the devices out as
// NVIDIA's plugin does, with their ids in the environment and a device file for each.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const resource = "nvidia.com/gpu"

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		allocated := &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		}
		for index := range container.DevicesIds {
			// There is no card behind it, but a program that looks for one finds the file.
			file := &api.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/nvidia" + strconv.Itoa(index), Permissions: "rw"}
			allocated.Devices = append(allocated.Devices, file)
		}
		response.ContainerResponses = append(response.ContainerResponses, allocated)
	}
	return response, nil
}

// Usage: gpus DIRECTORY COUNT, where DIRECTORY has the kubelet's socket.
func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	// The paths of sockets are short, those of tests are not.
	if err := os.Chdir(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	served := &plugin{}
	for index := range count {
		served.devices = append(served.devices, &api.Device{ID: fmt.Sprintf("GPU-%d", index), Health: api.Healthy})
	}
	const socket = "gpus.sock"
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	if err := register(socket); err != nil {
		log.Fatal(err)
	}
	log.Fatal(<-ended)
}

func register(socket string) error {
	connection, err := grpc.NewClient("unix:"+filepath.Base(api.KubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), request)
	return err
}
