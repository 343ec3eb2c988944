module paddlejob.devcluster/pki

go 1.25.0
