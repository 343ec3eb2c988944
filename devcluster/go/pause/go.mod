module paddlejob.devcluster/pause

go 1.24.0
